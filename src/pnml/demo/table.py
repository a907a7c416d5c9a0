"""The numbers of the demo: Baseline beside pNML, on every kind of strange picture."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich import box
from rich.table import Table
from rich.text import Text

from pnml.metrics import Metrics, evaluate

if TYPE_CHECKING:
    from pnml.demo.scoring import Outcome

_METRICS = {"AUROC": "auroc", "TNR at TPR 95%": "tnr_at_tpr95", "Detection accuracy": "detection_accuracy"}


class Comparison(NamedTuple):
    """How well two scores tell strange pictures of one kind from the known ones."""

    name: str
    baseline: Metrics
    pnml: Metrics


def compare(outcome: Outcome) -> list[Comparison]:
    """Measure one minus the largest probability, and the regret."""
    known = outcome.known
    return [
        Comparison(one.pictures.name, evaluate(known.baseline, one.baseline), evaluate(known.regret, one.regret))
        for one in outcome.strange
    ]


def as_table(comparisons: list[Comparison]) -> Table:
    """Draw a comparison in plain characters, fewer than 80 in a line; the better of two numbers is bold."""
    table = Table(box=box.MARKDOWN, header_style="")
    table.add_column("Baseline / pNML, in %", no_wrap=True)
    for heading in _METRICS:
        table.add_column(heading, justify="right", no_wrap=True)
    for row in comparisons:
        pairs = [(getattr(row.baseline, metric), getattr(row.pnml, metric)) for metric in _METRICS.values()]
        table.add_row(row.name, *(_pair(*pair) for pair in pairs))
    return table


def _pair(baseline: float, pnml: float) -> Text:
    best = max(baseline, pnml)
    return Text(" / ").join(Text(f"{one:.1f}", style="bold" if one == best else "") for one in (baseline, pnml))
