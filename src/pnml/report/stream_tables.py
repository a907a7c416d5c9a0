"""What drives a change of a stream: which predicted classes are flagged more than expected, and by which layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.core.conformal import observed_interval
from pnml.io.scores import layer_labels
from pnml.report.by_class import CONFIDENCE, MOST_CLASSES, as_range
from pnml.report.model import LENGTHS, Table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pnml.core.monitor import Monitor


def excess_by_class(monitor: Monitor) -> NDArray[np.float64]:
    """Return how many more samples of each class are flagged, in the last period, than expected on average."""
    last = monitor.periods[-1]
    excess: NDArray[np.float64] = last.class_flagged - monitor.threshold.false_alarm_rate * last.class_samples
    return excess


def class_table(monitor: Monitor, class_names: Sequence[str] = ()) -> Table | None:
    """Return the flagged share of every predicted class, those far above expectation first; None if not known."""
    *earlier, last = monitor.periods
    if not last.class_samples.any():
        return None
    excess = excess_by_class(monitor)
    seen = np.flatnonzero(last.class_samples)
    columns = ["Predicted class", "Samples", "Flagged", "Above expectation", "Flagged, %"]
    columns += [f"Interval, {CONFIDENCE:.0%} confidence", *["Before, %"] * len(earlier)]
    rows = []
    for number in seen[np.argsort(-excess[seen], kind="stable")][:MOST_CLASSES].tolist():
        flagged, samples = int(last.class_flagged[number]), int(last.class_samples[number])
        rows.append(
            (
                class_names[number] if number < len(class_names) else str(number),
                f"{samples:,}",
                f"{flagged:,}",
                f"{excess[number]:+,.1f}",
                100 * flagged / samples,
                as_range(observed_interval(flagged, samples, CONFIDENCE)),
                *(_percent(one.class_flagged[number], one.class_samples[number]) for one in earlier),
            )
        )
    most = f", the {MOST_CLASSES} most of {len(seen):,}" if len(seen) > MOST_CLASSES else ""
    rate = f"{100 * monitor.threshold.false_alarm_rate:.4g}%"
    return Table(
        title=f"By predicted class{most}, {last}",
        columns=tuple(columns),
        rows=tuple(rows),
        note=f"Above expectation: flagged samples beyond {rate} of the samples of the class, the expected share on "
        "average.",
    )


def depth_table(monitor: Monitor) -> Table | None:
    """Return the strangest layers of flagged samples, from input to output; None if not known."""
    *earlier, last = monitor.periods
    if not last.layer_flagged.any() or not monitor.layer_names:
        return None
    embedding, *layers = enumerate(layer_labels(monitor.layer_names))
    has_lengths = layers[-1][1] == LENGTHS
    layers.insert(len(layers) - has_lengths, embedding)
    rows = tuple(
        (
            name,
            f"{last.layer_flagged[column]:,}",
            *(_percent(one.layer_flagged[column], one.layer_flagged.sum()) for one in (last, *earlier)),
        )
        for column, name in layers
    )
    return Table(
        title=f"By the strangest layer of flagged samples, {last}",
        columns=("Layer, from input to output", "Flagged", "Share, %", *["Share before, %"] * len(earlier)),
        rows=rows,
    )


def _percent(part: int, whole: int) -> float | None:
    return 100 * float(part) / float(whole) if whole else None
