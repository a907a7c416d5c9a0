"""How many samples of each predicted class are flagged, beside the false alarms that the calibration lets expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.core.conformal import observed_interval
from pnml.report.decisions import decisions
from pnml.report.table import Table
from pnml.report.tables import render_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pnml.core.calibration import Threshold
    from pnml.report.model import Report

MOST_CLASSES = 40
"""Of more classes, those that are flagged most are shown."""
CONFIDENCE = 0.95
"""Of intervals, where no calibration names another."""


def render_classes(report: Report) -> str:
    """Return the table of every set with predictions; the script shows that of the selected set."""
    parts = []
    for number, one in report.numbered_sets:
        decided = decisions(report, one)
        if decided is not None and one.prediction is not None:
            table = class_table(one.prediction, decided, report.class_names, report.calibration, one.name)
            rendered = render_table(table, '<span class="key"></span>')
            parts.append(f'<div class="of-set {one.role}" data-set="{number}">{rendered}</div>')
    if not parts:
        return ""
    return "\n".join(
        [
            '<section class="panel" aria-labelledby="classes-title">',
            '<h2 id="classes-title">Flagged by predicted class</h2>',
            *parts,
            "</section>",
        ]
    )


def class_table(
    prediction: NDArray[np.int64],
    is_ood: NDArray[np.bool_],
    class_names: Sequence[str] = (),
    threshold: Threshold | None = None,
    title: str = "Flagged by predicted class",
) -> Table:
    """Return the share of samples that is flagged for every predicted class, with its confidence interval.

    Args:
        prediction: the predicted classes, shape (n,).
        is_ood: which samples are flagged, shape (n,).
        class_names: by class number.
        threshold: of the detector, for the false alarms to expect of known samples.
        title: of the table.

    >>> table = class_table(np.array([0, 0, 1, 1]), np.array([False, False, True, False]), ["cat", "dog"])
    >>> table.rows[1]
    ('dog', 50.0, '1', '2', '1.3% to 98.7%')
    """
    numbers, places = np.unique(prediction, return_inverse=True)
    counts, flagged = np.bincount(places), np.bincount(places[is_ood], minlength=len(numbers))
    counted = {int(number): (int(flagged[place]), int(counts[place])) for place, number in enumerate(numbers)}
    intervals = {number: observed_interval(*both, CONFIDENCE) for number, both in counted.items()}
    expected = {} if threshold is None else {one.prediction: one for one in threshold.classes}
    columns = ["Predicted class", "Flagged, %", "Flagged", "Samples", f"Interval, {CONFIDENCE:.0%} confidence"]
    columns += ["Known samples flagged"] if expected else []
    rows = []
    for number in sorted(sorted(intervals, key=lambda number: intervals[number], reverse=True)[:MOST_CLASSES]):
        name = class_names[number] if 0 <= number < len(class_names) else str(number)
        shown, of_all = counted[number]
        row: tuple[str | float, ...] = (
            name,
            100 * shown / of_all,
            f"{shown:,}",
            f"{of_all:,}",
            as_range(intervals[number]),
        )
        if expected:
            one = expected.get(number)
            kind = "guaranteed" if one is not None and one.is_own else "measured"
            row = (*row, "unknown" if one is None else f"{as_range(one.interval)}, {kind}")
        rows.append(row)
    if len(intervals) > MOST_CLASSES:
        title = f"{title}: the {MOST_CLASSES} most flagged of {len(intervals):,}"
    return Table(title=title, columns=tuple(columns), rows=tuple(rows), note=_note(threshold))


def expected_interval(threshold: Threshold) -> tuple[float, float]:
    """Return where the share of known samples lies that a threshold flags, of all classes together.

    With a threshold for each class it lies between the means of the ends of the classes' intervals, weighted by their
    calibration samples: classes of few samples flag less than was asked for.

    >>> from pnml.core.calibration import calibrate
    >>> known = calibrate(np.arange(76) % 38, predictions=np.arange(76) // 38, by="prediction")
    >>> as_range(expected_interval(known)), as_range(known.interval)  # 1 of 39 in either class, 3 of 77 in both
    ('0.1% to 9.3%', '0.8% to 9.2%')
    """
    if threshold.by is None:
        return threshold.interval
    counts = [one.count for one in threshold.classes]
    low, high = np.average([one.interval for one in threshold.classes], axis=0, weights=counts).tolist()
    return low, high


def _note(threshold: Threshold | None) -> str:
    if threshold is None or not threshold.classes:
        return ""
    words = (
        f"The last column is the share of known samples that the calibration lets expect, with "
        f"{threshold.confidence:.0%} confidence: guaranteed where the class has a threshold of its own, otherwise as "
        "measured on its calibration samples."
    )
    if threshold.by is None:
        return words
    return f"Samples were flagged by the threshold of their class; the slider moves one threshold for all. {words}"


def as_range(interval: tuple[float, float]) -> str:
    """Return an interval of shares in percent, as text.

    >>> as_range((0.017, 0.1))
    '1.7% to 10.0%'
    """
    low, high = interval
    return f"{low:.1%} to {high:.1%}"
