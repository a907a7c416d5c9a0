"""Metrics of a report, and tables as HTML."""

from __future__ import annotations

import re
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from pnml.metrics import Metrics, average, evaluate
from pnml.report.labels import label
from pnml.report.table import Table

if TYPE_CHECKING:
    from pnml.report.model import Report

_NUMBER = re.compile(r"[-+]?[\d,]+(\.\d+)?%?")
_ALIGNED = ' class="number"'

METRICS = ("auroc", "tnr_at_tpr95", "detection_accuracy")


class MetricsPair(NamedTuple):
    """The metrics of one OOD set against the in-distribution set; ``baseline`` is None without baseline scores."""

    pnml: Metrics
    baseline: Metrics | None


def metrics_by_set(report: Report) -> dict[str, MetricsPair]:
    """Return the metrics of every OOD set by its name; empty without an in-distribution set."""
    ind = report.ind_set
    if ind is None:
        return {}
    pairs = {}
    for ood in report.ood_sets:
        has_baseline = ind.baseline is not None and ood.baseline is not None
        baseline = evaluate(ind.baseline, ood.baseline) if has_baseline else None
        pairs[ood.name] = MetricsPair(evaluate(ind.regret, ood.regret), baseline)
    return pairs


def metric_table(report: Report) -> Table | None:
    """Return the table of all metrics of every OOD set and their means; None if there are no metrics.

    >>> from pnml.report import ScoredSet
    >>> known = ScoredSet(name="known", role="in", regret=[0.1, 0.2], baseline=[0.1, 0.4])
    >>> new = ScoredSet(name="new", role="out", regret=[0.3, 0.4], baseline=[0.3, 0.5])
    >>> from pnml.report import Report
    >>> metric_table(Report(title="", facts={}, sets=(known, new))).rows
    (('new', 75.0, 100.0, 50.0, 100.0, 75.0, 100.0),)
    """
    pairs = metrics_by_set(report)
    if report.ind_set is None or not pairs:
        return None
    rows = [(name, *metric_row(pair.baseline, pair.pnml)) for name, pair in pairs.items()]
    if len(pairs) > 1:
        baselines = [pair.baseline for pair in pairs.values() if pair.baseline is not None]
        mean = average(baselines) if len(baselines) == len(pairs) else None
        rows.append(("Mean", *metric_row(mean, average(pair.pnml for pair in pairs.values()))))
    return Table(
        title=f"{report.ind_set.name} against each out-of-distribution set",
        columns=("OOD set", *metric_columns(report.baseline_name, report.pnml_name)),
        rows=tuple(rows),
        note="In percent, with in-distribution as the positive class. The better value is bold.",
    )


def metric_columns(*names: str) -> tuple[tuple[str, str], ...]:
    """Return the headings of the metrics in ``METRICS``, with one column per name."""
    return tuple((label(metric), name) for metric in METRICS for name in names)


def metric_row(*columns: Metrics | None) -> tuple[float | None, ...]:
    """Return the entries of one row under :func:`metric_columns`."""
    return tuple(None if one is None else getattr(one, metric) for metric in METRICS for one in columns)


def render_table(table: Table, key: str = "") -> str:
    """Return a table as HTML, with the key of a colour before its title; it scrolls horizontally on narrow screens."""
    numeric = _numeric_columns(table)
    body = "".join(_row(table, row, numeric) for row in table.rows)
    note = f'<p class="muted">{escape(table.note)}</p>' if table.note else ""
    return f"""<h3>{key}{escape(table.title)}</h3>
<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.title)}">
<table>
<thead>{_head(table, numeric)}</thead>
<tbody>
{body}</tbody>
</table>
</div>
{note}"""


def _numeric_columns(table: Table) -> list[bool]:
    """Return which columns hold numbers, as numbers or as text, and are aligned by their last digit."""
    columns = zip(*table.rows, strict=True) if table.rows else [()] * len(table.columns)
    return [number > 0 and all(map(_is_number, column)) for number, column in enumerate(columns)]


def _is_number(value: str | float | None) -> bool:
    return not isinstance(value, str) or _NUMBER.fullmatch(value) is not None


def _head(table: Table, numeric: list[bool]) -> str:
    """Return the heading rows: two if columns are grouped, otherwise one."""
    grouped = any(isinstance(column, tuple) for column in table.columns)
    first, second = "", ""
    named = zip(table.columns, numeric, strict=True)
    for group, columns in groupby(named, lambda pair: pair[0][0] if isinstance(pair[0], tuple) else None):
        members = list(columns)
        if group is None:
            first += "".join(
                f'<th scope="col" rowspan="{1 + grouped}"{_ALIGNED if is_number else ""}>{escape(str(name))}</th>'
                for name, is_number in members
            )
        else:
            first += f'<th scope="colgroup" colspan="{len(members)}" class="group">{escape(group)}</th>'
            second += "".join(f'<th scope="col"{_ALIGNED}>{escape(name[1])}</th>' for name, _ in members)
    return f"<tr>{first}</tr><tr>{second}</tr>" if grouped else f"<tr>{first}</tr>"


def _row(table: Table, row: tuple[str | float | None, ...], numeric: list[bool]) -> str:
    best: dict[str, float] = {}
    for column, value in zip(table.columns, row, strict=True):
        if isinstance(column, tuple) and isinstance(value, float):
            best[column[0]] = max(round(value, 1), best.get(column[0], 0.0))
    cells = []
    for number, (column, value) in enumerate(zip(table.columns, row, strict=True)):
        if number == 0:
            cells.append(f'<th scope="row">{escape(_text(value))}</th>')
        elif isinstance(value, str):
            cells.append(f"<td{_ALIGNED if numeric[number] else ''}>{escape(value)}</td>")
        else:
            is_best = isinstance(column, tuple) and value is not None and round(value, 1) == best[column[0]]
            cells.append(f'<td class="number{" best" if is_best else ""}">{_text(value)}</td>')
    return f"<tr>{''.join(cells)}</tr>\n"


def _text(value: str | float | None) -> str:
    if value is None:
        return "–"
    return value if isinstance(value, str) else f"{value:.1f}"
