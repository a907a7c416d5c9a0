"""The table of the demo: Baseline and pNML on every kind of out-of-distribution image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich import box
from rich.table import Table
from rich.text import Text

from pnml.demo.report import as_report
from pnml.report.labels import label
from pnml.report.tables import METRICS, metrics_by_set

if TYPE_CHECKING:
    from pnml.demo.scoring import DemoResult
    from pnml.report.tables import MetricsPair


def compare(result: DemoResult) -> dict[str, MetricsPair]:
    """Return the metrics of Baseline (1 − the largest probability) and of the regret for each kind of OOD image."""
    return metrics_by_set(as_report(result))


def as_table(comparison: dict[str, MetricsPair]) -> Table:
    """Return a table in ASCII, at most 80 characters wide; the better of two numbers is bold."""
    table = Table(box=box.MARKDOWN, header_style="")
    table.add_column("Baseline / pNML, in %", no_wrap=True)
    for metric in METRICS:
        table.add_column(label(metric), justify="right", no_wrap=True)
    for name, pair in comparison.items():
        table.add_row(name, *(_cell(getattr(pair.baseline, metric), getattr(pair.pnml, metric)) for metric in METRICS))
    return table


def _cell(baseline: float, pnml: float) -> Text:
    best = max(baseline, pnml)
    return Text(" / ").join(Text(f"{one:.1f}", style="bold" if one == best else "") for one in (baseline, pnml))
