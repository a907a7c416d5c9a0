"""Tables of metrics as HTML."""

from __future__ import annotations

from html import escape
from itertools import groupby
from typing import TYPE_CHECKING

from pnml.metrics import average
from pnml.report.labels import label
from pnml.report.model import Table
from pnml.report.numbers import pairs

if TYPE_CHECKING:
    from pnml.metrics import Metrics
    from pnml.report.model import Report

METRICS = ("auroc", "tnr_at_tpr95", "detection_accuracy")


def metric_table(report: Report) -> Table | None:
    """Lay out the three metrics of every OOD set, the baseline's beside pNML's, and their means; None without any.

    >>> from pnml.report import ScoredSet
    >>> known = ScoredSet(name="known", role="in", regret=[0.1, 0.2], baseline=[0.1, 0.4])
    >>> new = ScoredSet(name="new", role="out", regret=[0.3, 0.4], baseline=[0.3, 0.5])
    >>> from pnml.report import Report
    >>> metric_table(Report(title="", facts={}, sets=(known, new))).rows
    (('new', 75.0, 100.0, 50.0, 100.0, 75.0, 100.0),)
    """
    found = pairs(report)
    if report.inside is None or not found:
        return None
    rows = [(name, *row_of(pair.baseline, pair.pnml)) for name, pair in found.items()]
    if len(found) > 1:
        alone = [pair.baseline for pair in found.values() if pair.baseline is not None]
        mean = average(alone) if len(alone) == len(found) else None
        rows.append(("Mean", *row_of(mean, average(pair.pnml for pair in found.values()))))
    return Table(
        title=f"{report.inside.name} against each out-of-distribution set",
        columns=("OOD set", *metric_columns(report.baseline_name, report.pnml_name)),
        rows=tuple(rows),
        note="In percent; in-distribution is the positive class. The better of two is bold.",
    )


def metric_columns(*names: str) -> tuple[tuple[str, str], ...]:
    """Give the headings of the three metrics, each with a column per name."""
    return tuple((label(metric), name) for metric in METRICS for name in names)


def row_of(*measured: Metrics | None) -> tuple[float | None, ...]:
    """Give the entries under :func:`metric_columns`."""
    return tuple(None if one is None else getattr(one, metric) for metric in METRICS for one in measured)


def render_table(table: Table) -> str:
    """Write a table that scrolls by itself where the screen is narrow."""
    body = "".join(_row(table, row) for row in table.rows)
    note = f'<p class="muted">{escape(table.note)}</p>' if table.note else ""
    return f"""<h3>{escape(table.title)}</h3>
<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">
<table>
<thead>{_head(table)}</thead>
<tbody>
{body}</tbody>
</table>
</div>
{note}"""


def _head(table: Table) -> str:
    """Write the headings: in two rows where columns are grouped."""
    grouped = any(isinstance(column, tuple) for column in table.columns)
    first, second = "", ""
    for group, columns in groupby(table.columns, lambda column: column[0] if isinstance(column, tuple) else None):
        members = list(columns)
        if group is None:
            first += "".join(f'<th scope="col" rowspan="{1 + grouped}">{escape(str(name))}</th>' for name in members)
        else:
            first += f'<th scope="colgroup" colspan="{len(members)}" class="group">{escape(group)}</th>'
            second += "".join(f'<th scope="col" class="number">{escape(name[1])}</th>' for name in members)
    return f"<tr>{first}</tr><tr>{second}</tr>" if grouped else f"<tr>{first}</tr>"


def _row(table: Table, row: tuple[str | float | None, ...]) -> str:
    best: dict[str, float] = {}
    for column, value in zip(table.columns, row, strict=True):
        if isinstance(column, tuple) and isinstance(value, float):
            best[column[0]] = max(round(value, 1), best.get(column[0], 0.0))
    cells = []
    for number, (column, value) in enumerate(zip(table.columns, row, strict=True)):
        if number == 0:
            cells.append(f'<th scope="row">{escape(_text(value))}</th>')
        elif isinstance(value, str):
            cells.append(f"<td>{escape(value)}</td>")
        else:
            is_best = isinstance(column, tuple) and value is not None and round(value, 1) == best[column[0]]
            cells.append(f'<td class="number{" best" if is_best else ""}">{_text(value)}</td>')
    return f"<tr>{''.join(cells)}</tr>\n"


def _text(value: str | float | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.1f}"
