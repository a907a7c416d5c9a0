"""Metrics of a report, and how tables are laid out."""

from __future__ import annotations

import re
from itertools import groupby
from typing import TYPE_CHECKING, Any, NamedTuple

from pnml.metrics import Metrics, average, evaluate
from pnml.report.labels import label
from pnml.report.model import Table

if TYPE_CHECKING:
    from pnml.report.model import Report

_NUMBER = re.compile(r"[-+]?[\d,]+(\.\d+)?%?")
_AXIS = (172, 468)  # of the dots, in units of their drawing

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

    >>> from pnml.report import Report, ScoredSet
    >>> known = ScoredSet(name="known", role="in", regret=[0.1, 0.2], baseline=[0.1, 0.4])
    >>> new = ScoredSet(name="new", role="out", regret=[0.3, 0.4], baseline=[0.3, 0.5])
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
        columns=(
            "OOD set",
            *((label(one), name) for one in METRICS for name in (report.baseline_name, report.pnml_name)),
        ),
        rows=tuple(rows),
        note="In percent, with in-distribution as the positive class. The better value is bold.",
    )


def metric_row(*columns: Metrics | None) -> tuple[float | None, ...]:
    """Return every metric of ``METRICS`` for each of the columns."""
    return tuple(None if one is None else getattr(one, metric) for metric in METRICS for one in columns)


def layout(table: Table) -> dict[str, Any]:
    """Return what the macro ``table`` of the templates reads."""
    numeric = [
        place > 0 and all(not isinstance(row[place], str) or _NUMBER.fullmatch(str(row[place])) for row in table.rows)
        for place in range(len(table.columns))
    ]
    groups = [column[0] if isinstance(column, tuple) else None for column in table.columns]
    subheads = [column[1] for column in table.columns if isinstance(column, tuple)]
    heads: list[dict[str, Any]] = []
    for group, places in groupby(range(len(groups)), lambda place: groups[place]):
        members = list(places)
        if group is None:
            heads += [{"text": table.columns[place], "is_number": numeric[place], "span": 0} for place in members]
        elif len(set(groups) - {None}) == 1:  # the title says what a single group is of
            heads += [{"text": name, "is_number": True, "span": 0} for name in subheads]
            subheads = []
        else:
            heads.append({"text": group, "span": len(members)})
    return {
        "title": table.title,
        "note": table.note,
        "folded": table.folded,
        "heads": heads,
        "subheads": subheads,
        "rows": [_cells(row, groups, numeric) for row in table.rows],
        "chart": _chart(table) if table.charted else None,
    }


def _cells(row: tuple[str | float | None, ...], groups: list[str | None], numeric: list[bool]) -> list[dict[str, Any]]:
    shown = [round(value, 1) if isinstance(value, float) else None for value in row]
    best = {
        group: max(
            (value for value, one in zip(shown, groups, strict=True) if one == group and value is not None),
            default=None,
        )
        for group in set(groups) - {None}
    }
    cells = []
    for value, number, group, is_numeric in zip(row, shown, groups, numeric, strict=True):
        text = value if isinstance(value, str) else "–" if value is None else f"{value:.1f}"
        is_best = group is not None and number is not None and number == best[group]
        cells.append({"text": text, "is_number": is_numeric or not isinstance(value, str), "is_best": is_best})
    return cells


def _chart(table: Table) -> dict[str, Any]:
    """Return the dots of every row, the leading column last, so that it is drawn above the others."""
    named = [(place, column[1]) for place, column in enumerate(table.columns) if isinstance(column, tuple)]
    named.sort(key=lambda entry: entry[1] == table.charted)
    values = [value for row in table.rows for value in row if isinstance(value, float)]
    low = min(90, 10 * int(min(values, default=90) / 10))
    step = 5 if low > 70 else 10

    def x(value: float) -> float:
        return round(_AXIS[0] + (_AXIS[1] - _AXIS[0]) * (value - low) / (100 - low), 1)

    rows = [
        {
            "name": row[0],
            "dots": [
                {"x": x(value), "leads": name == table.charted, "text": f"{name} {value:.1f}"}
                for place, name in named
                if isinstance(value := row[place], float)
            ],
        }
        for row in table.rows
    ]
    ticks = [{"x": x(value), "text": str(value)} for value in range(low, 101, step)]
    return {"leading": table.charted, "ticks": ticks, "rows": rows}
