"""Thresholds of predicted classes: one from the rows of each class that has enough, the pooled one for the others.

A threshold for all classes flags at most α of all in-distribution samples, and may flag far more of a rare class. Split
conformal prediction within each predicted class (Mondrian) flags at most α of every class that has rows enough.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import Array, DeviceConstants, as_array, is_remote, is_traced, like, namespace, to_numpy
from pnml.core.conformal import flagged_ranks, guaranteed_interval, observed_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray


@dataclass(frozen=True)
class ClassThreshold:
    """What a threshold means for the samples of one predicted class.

    Attributes:
        prediction: the class.
        count: how many calibration samples were predicted to be of this class.
        flagged: how many of these have a regret above ``value``.
        value: the regret in nats above which a sample of this class is flagged.
        interval: where the false-alarm rate of this class lies: guaranteed if ``is_own``, otherwise estimated from
            ``flagged`` and ``count``.
        is_own: whether ``value`` was set from the samples of this class alone. Otherwise it is the pooled threshold,
            which promises nothing about this class.
    """

    prediction: int
    count: int
    flagged: int
    value: float
    interval: tuple[float, float]
    is_own: bool


class ClassGroups:
    """Calibration scores in groups: all of them, and those of each class that has enough for a threshold of its own.

    Args:
        scores: of all classes, ascending, shape (n,).
        predictions: the class of each, shape (n,).
        n_classes: the number C of classes.
        false_alarm_rate: α; a class has enough scores if ⌊(count + 1) α⌋ is at least 1.
        pooled: the threshold of classes that have not.

    Attributes:
        group_of_class: the number of the group of each class, 0 for the group of all scores, shape (C,).
        group_sizes: the number of scores of each group, shape (G,).
        values: the threshold of each class, shape (C,).
    """

    def __init__(
        self,
        scores: NDArray[np.float64],
        predictions: NDArray[np.int64],
        n_classes: int,
        false_alarm_rate: float,
        pooled: float,
    ) -> None:
        n = len(scores)
        counts = np.bincount(predictions, minlength=n_classes)
        ranks = np.array([flagged_ranks(int(count), false_alarm_rate) for count in counts])
        own = np.flatnonzero(ranks)
        self.values = np.full(n_classes, pooled)
        self.group_of_class = np.zeros(n_classes, dtype=np.int64)
        self.group_of_class[own] = np.arange(1, len(own) + 1)
        # Where a score stands among those of its group is read off where it stands among all: each group is the list of
        # its members' places in the order of all scores, and the lists of all groups follow each other as one.
        members = [np.arange(n), *(np.flatnonzero(predictions == number) for number in own)]
        for number, places in zip(own, members[1:], strict=True):
            self.values[number] = scores[places[len(places) - ranks[number]]]
        self.group_sizes = np.array([len(places) for places in members])
        starts = np.cumsum(self.group_sizes) - self.group_sizes
        places = np.concatenate([places + number * (n + 1) for number, places in enumerate(members)])
        group = self.group_of_class
        self._scores = DeviceConstants(scores, self.values)
        self._numbers = DeviceConstants(places, group * (n + 1), starts[group], self.group_sizes[group])
        self._n_classes = n_classes

    def threshold(self, scores: Array, predictions: Array) -> Array:
        """Return the threshold of each score, from its predicted class."""
        classes = self._flat(predictions, scores)
        _, values = self._scores.to(scores)
        return namespace(scores).reshape(namespace(scores).take(values, classes), scores.shape)

    def p_value(self, scores: Array, predictions: Array) -> Array:
        """Return the share of the scores of the same group that are at least as large."""
        xp, flat = namespace(scores), namespace(scores).reshape(scores, (-1,))
        classes = self._flat(predictions, scores)
        held, _ = self._scores.to(scores)
        places, first, start, size = self._numbers.to(scores, xp.int64)
        size = xp.take(size, classes)
        below = xp.searchsorted(places, xp.take(first, classes) + count_below(held, flat), side="left")
        as_large = 1 + size - (below - xp.take(start, classes))
        return xp.reshape(xp.astype(as_large, scores.dtype) / xp.astype(1 + size, scores.dtype), scores.shape)

    def _flat(self, predictions: Array, scores: Array) -> Array:
        """Return predicted classes, checked, as a flat array of the library and device of the scores."""
        found = as_array(predictions)
        if tuple(found.shape) != tuple(scores.shape):
            raise ValueError(
                f"expected one prediction for each score, of shape {tuple(scores.shape)}, got {tuple(found.shape)}"
            )
        if type(found) is not type(scores) or compat.device(found) != compat.device(scores):
            found = like(scores, to_numpy(found, np.int64))
        xp = namespace(found)
        if not is_remote(found) and not is_traced():
            check_predictions(to_numpy(found, None), self._n_classes)
        return xp.reshape(xp.astype(found, xp.int64, copy=False), (-1,))


def count_below(held: Array, scores: Array) -> Array:
    """Return how many of the ascending scores ``held`` (n,) are smaller than each score; n if it is no number."""
    xp = namespace(scores)
    below = xp.astype(xp.searchsorted(held, scores, side="left"), xp.int64)
    return xp.where(scores <= held[-1], below, xp.full_like(below, held.shape[0]))


def check_predictions(predictions: NDArray[Any], n_classes: int) -> None:
    """Raise ``ValueError`` unless all predictions are class numbers."""
    with np.errstate(invalid="ignore"):  # of what is no number
        wrong = (predictions < 0) | (predictions >= n_classes) | (predictions != predictions.astype(np.int64))
    if wrong.any():
        raise ValueError(f"expected predictions from 0 to {n_classes - 1}, got {predictions[wrong][0]}")


def class_thresholds(
    scores: NDArray[np.float64],
    predictions: NDArray[np.int64],
    values: NDArray[np.float64],
    is_own: NDArray[np.bool_],
    *,
    false_alarm_rate: float,
    confidence: float,
) -> tuple[ClassThreshold, ...]:
    """Return what the thresholds ``values`` (C,) of all classes mean for each, given the calibration scores (n,)."""
    counts = np.bincount(predictions, minlength=len(values))
    flagged = np.bincount(predictions[~(scores <= values[predictions])], minlength=len(values))
    found = []
    for number, (count, above, own) in enumerate(zip(counts.tolist(), flagged.tolist(), is_own.tolist(), strict=True)):
        if own:
            interval = guaranteed_interval(flagged_ranks(count, false_alarm_rate), count, confidence)
        else:
            interval = observed_interval(above, count, confidence)
        found.append(ClassThreshold(number, count, above, float(values[number]), interval, own))
    return tuple(found)
