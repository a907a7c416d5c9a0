"""How many samples of each predicted class are flagged, beside the false alarms that the calibration lets expect."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.core.conformal import observed_interval
from pnml.report.model import Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pnml.core.calibration import Threshold

MOST_CLASSES = 40
"""Of more classes, those that are flagged most are shown."""
CONFIDENCE = 0.95
"""Of intervals, where no calibration names another."""


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
    samples = np.bincount(places).tolist()
    flagged = np.bincount(places[is_ood], minlength=len(numbers)).tolist()
    intervals = [observed_interval(*counts, CONFIDENCE) for counts in zip(flagged, samples, strict=True)]
    shown = sorted(sorted(range(len(numbers)), key=lambda place: intervals[place], reverse=True)[:MOST_CLASSES])
    rows = [
        (
            class_names[number] if 0 <= (number := int(numbers[place])) < len(class_names) else str(number),
            100 * flagged[place] / samples[place],
            f"{flagged[place]:,}",
            f"{samples[place]:,}",
            as_range(intervals[place]),
        )
        for place in shown
    ]
    columns = ("Predicted class", "Flagged, %", "Flagged", "Samples", f"Interval, {CONFIDENCE:.0%} confidence")
    if len(numbers) > MOST_CLASSES:
        title = f"{title}: the {MOST_CLASSES} most flagged of {len(numbers):,}"
    if threshold is None or not threshold.classes:
        return Table(title=title, columns=columns, rows=tuple(rows))
    promised = {one.prediction: one for one in threshold.classes}
    promises = [
        f"{as_range(one.interval)}, {'guaranteed' if one.is_own else 'measured'}" if one is not None else "unknown"
        for one in (promised.get(int(numbers[place])) for place in shown)
    ]
    return Table(
        title=title,
        columns=(*columns, "Known samples flagged"),
        rows=tuple((*row, promise) for row, promise in zip(rows, promises, strict=True)),
        note=_note(threshold),
    )


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


def as_range(interval: tuple[float, float]) -> str:
    """Return an interval of shares in percent, as text.

    >>> as_range((0.017, 0.1))
    '1.7% to 10.0%'
    """
    return "{:.1%} to {:.1%}".format(*interval)


def _note(threshold: Threshold) -> str:
    words = (
        f"The last column is the share of known samples that the calibration lets expect, with "
        f"{threshold.confidence:.0%} confidence: guaranteed where the class has a threshold of its own, otherwise as "
        "measured on its calibration samples."
    )
    if threshold.by is None:
        return words
    return f"Samples were flagged by the threshold of their class; the slider moves one threshold for all. {words}"
