"""Thresholds with a guarantee: a score above which a sample is called out-of-distribution.

Split conformal prediction: of n scores of in-distribution data that the detector was not fitted on, take the k-th
smallest with ``k = ⌈(n + 1)(1 − α)⌉``. A fresh in-distribution score exceeds it with probability at most α, whatever
the distribution of the scores. That is an average over calibration sets and over all classes; for the calibration set
at hand the realised false-alarm rate follows a Beta(n + 1 − k, k) distribution (ties only lower it), whose central
interval is reported beside it. With ``by="prediction"`` the same is done within each predicted class.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import numpy as np

from pnml.backend.arrays import (
    Array,
    DeviceConstants,
    as_array,
    is_real_floating,
    like,
    namespace,
    to_compute,
    to_numpy,
)
from pnml.core.by_class import ClassGroups, ClassThreshold, check_predictions, class_thresholds, count_below
from pnml.core.conformal import check_share, flagged_ranks, guaranteed_interval, least_count

By: TypeAlias = Literal["prediction"]


class PooledClassesWarning(UserWarning):
    """Some predicted classes have too few calibration samples for a threshold of their own."""


@dataclass(frozen=True)
class Threshold:
    """A calibrated threshold on the regret and how it was set.

    Attributes:
        value: regret in nats; a sample is out-of-distribution when its regret is larger. With ``by="prediction"`` this
            is the threshold of classes that have none of their own; see ``classes``.
        false_alarm_rate: the target α, the expected share of in-distribution samples flagged is at most this.
        interval: where the realised false-alarm rate of ``value``, over all classes, lies with probability
            ``confidence``.
        confidence: the coverage of ``interval``, and of the intervals of classes.
        source: "held-out"; "not held-out" if training rows were recognised; "leave-one-out", or "repeated" if many rows
            had copies that stayed when one was left out.
        scores: the sorted in-distribution scores it was set from, for p-values.
        by: "prediction" if every predicted class with enough calibration samples has a threshold of its own.
        predictions: the predicted class of each of ``scores``; None where it is not known.
        n_classes: the number C of classes; 0 where predictions are not known.
    """

    value: float
    false_alarm_rate: float
    interval: tuple[float, float]
    confidence: float
    source: str
    scores: np.ndarray[Any, Any] = field(repr=False, compare=False)
    by: By | None = None
    predictions: np.ndarray[Any, Any] | None = field(default=None, repr=False, compare=False)
    n_classes: int = field(default=0, repr=False, compare=False)

    def __str__(self) -> str:
        """Say what is flagged, and how often that is a mistake.

        >>> print(calibrate(np.arange(99.0), false_alarm_rate=0.05))
        regret above 94 nats, for 5% false alarms (1.7% to 10.0% with probability 95%), held-out
        >>> print(calibrate(np.arange(99.0), predictions=np.arange(99) // 50, by="prediction"))
        regret above a threshold for each of 2 predicted classes (2 of their own), for 5% false alarms, held-out
        """
        rate = f"{100 * self.false_alarm_rate:g}% false alarms"
        if self.by is not None:
            own = sum(one.is_own for one in self.classes)
            each = f"a threshold for each of {self.n_classes} predicted classes ({own} of their own)"
            return f"regret above {each}, for {rate}, {self.source}"
        low, high = (f"{100 * end:.1f}%" for end in self.interval)
        within = f"({low} to {high} with probability {100 * self.confidence:g}%)"
        return f"regret above {self.value:.4g} nats, for {rate} {within}, {self.source}"

    @property
    def count(self) -> int:
        """How many scores the threshold was set from."""
        return len(self.scores)

    @cached_property
    def classes(self) -> tuple[ClassThreshold, ...]:
        """What the threshold means for each predicted class; empty where predictions are not known.

        Classes without a threshold of their own have the pooled one, and the false-alarm rate that the calibration
        samples show for it.
        """
        if self.predictions is None:
            return ()
        values, is_own = np.full(self.n_classes, self.value), np.zeros(self.n_classes, dtype=bool)
        if self.groups is not None:
            values, is_own = self.groups.values, self.groups.group_of_class > 0
        rates = {"false_alarm_rate": self.false_alarm_rate, "confidence": self.confidence}
        return class_thresholds(self.scores, self.predictions, values, is_own, **rates)

    @cached_property
    def groups(self) -> ClassGroups | None:
        """The calibration scores in groups by predicted class; None without ``by``."""
        if self.by is None or self.predictions is None:
            return None
        return ClassGroups(self.scores, self.predictions, self.n_classes, self.false_alarm_rate, self.value)

    def p_value(self, scores: Array, predictions: Array | None = None) -> Array:
        """Return the conformal p-value of each score: the share of calibration scores at least as large, in (0, 1].

        A score that is no number has the smallest p-value.

        Args:
            scores: regrets, shape (n,).
            predictions: the predicted class of each; needed with ``by="prediction"``, where a sample is compared with
                the calibration samples of its class if these are enough.

        >>> threshold = calibrate(np.arange(99.0), false_alarm_rate=0.05)
        >>> threshold.p_value(np.array([-1.0, 97.5, 1000.0]))
        array([1.  , 0.02, 0.01])
        """
        given, scores = _computable(scores)
        if self.groups is not None:
            found = self.groups.p_value(scores, self._needed(predictions))
        else:
            (held,) = self._constants.to(scores)
            as_large = 1 + self.count - count_below(held, scores)
            found = namespace(scores).astype(as_large, scores.dtype) / (self.count + 1)
        return found if scores is given else like(given, found)

    def is_ood(self, scores: Array, predictions: Array | None = None) -> Array:
        """Return whether each score exceeds the threshold; a score that is no number does.

        Args:
            scores: regrets, shape (n,).
            predictions: the predicted class of each; needed with ``by="prediction"``.
        """
        given, scores = _computable(scores)
        limit = self.value if self.groups is None else self.groups.threshold(scores, self._needed(predictions))
        found = ~(scores <= limit)
        return found if scores is given else like(given, found)

    def _needed(self, predictions: Array | None) -> Array:
        if predictions is None:
            raise ValueError(
                "the threshold depends on the predicted class: pass predictions, "
                "threshold.is_ood(result.regret, result.prediction)"
            )
        return predictions

    def __post_init__(self) -> None:
        object.__setattr__(self, "_constants", DeviceConstants(self.scores))

    _constants: DeviceConstants = field(init=False, repr=False, compare=False)


def calibrate(
    scores: Array,
    *,
    predictions: Array | None = None,
    n_classes: int | None = None,
    by: By | None = None,
    false_alarm_rate: float = 0.05,
    confidence: float = 0.95,
    source: str = "held-out",
) -> Threshold:
    """Set a threshold from in-distribution scores so that at most ``false_alarm_rate`` of fresh ones exceed it.

    Args:
        scores: regrets of in-distribution samples, shape (n,).
        predictions: their predicted classes, shape (n,), for false-alarm rates by class.
        n_classes: the number of classes; the largest of ``predictions`` plus 1 when left out.
        by: "prediction" sets a threshold for every predicted class that has enough samples. The others share the one of
            all samples, which a :class:`PooledClassesWarning` and ``Threshold.classes`` say.
        false_alarm_rate: α in (0, 1).
        confidence: coverage of the interval given for the realised rate.
        source: where the scores come from, recorded in the result.

    >>> calibrate(np.arange(99.0), false_alarm_rate=0.05).value
    94.0
    >>> threshold = calibrate(np.arange(99.0), predictions=np.arange(99) // 50, by="prediction")
    >>> [(found.prediction, found.count, found.value) for found in threshold.classes]
    [(0, 50, 48.0), (1, 49, 97.0)]
    """
    for name, share in (("false_alarm_rate", false_alarm_rate), ("confidence", confidence)):
        check_share(name, share)
    if by not in {None, "prediction"}:
        raise ValueError(f'by must be "prediction" or None, got {by!r}')
    if by is not None and predictions is None:
        raise ValueError('by="prediction" needs the predicted class of every score: pass predictions, shape (n,)')
    values = to_numpy(as_array(scores))
    if values.ndim != 1:
        raise ValueError(f"expected scores of shape (n,), got shape {values.shape}")
    if not np.isfinite(values).all():
        bad = int(np.isfinite(values).argmin())
        raise ValueError(f"score {bad} is {values[bad]}: calibration scores must be finite")
    n = len(values)
    flagged = flagged_ranks(n, false_alarm_rate)
    if flagged < 1:
        raise ValueError(
            f"{n} calibration samples cannot support a false-alarm rate of {false_alarm_rate}: use at least "
            f"{least_count(false_alarm_rate)} samples or a higher rate"
        )
    order = np.argsort(values, kind="stable")
    held, classes = values[order], None
    if predictions is not None:
        classes = _checked(predictions, n, n_classes)[order]
        n_classes = int(classes.max()) + 1 if n_classes is None else n_classes
    interval = guaranteed_interval(flagged, n, confidence)
    threshold = Threshold(
        float(held[n - flagged]), false_alarm_rate, interval, confidence, source, held, by, classes, n_classes or 0
    )
    if by is not None:
        _warn_of_pooled(threshold)
    return threshold


def _checked(predictions: Array, count: int, n_classes: int | None) -> np.ndarray[Any, Any]:
    found = to_numpy(as_array(predictions), None)
    if found.shape != (count,):
        raise ValueError(f"expected one prediction for each of {count} scores, got shape {found.shape}")
    check_predictions(found, int(found.max()) + 1 if n_classes is None else n_classes)
    return found.astype(np.int64)


def _warn_of_pooled(threshold: Threshold) -> None:
    needed = least_count(threshold.false_alarm_rate)
    pooled = [one for one in threshold.classes if not one.is_own]
    if pooled:
        named = ", ".join([f"{one.prediction} ({one.count})" for one in pooled[:5]] + ["..."] * bool(pooled[5:]))
        warnings.warn(
            f"{len(pooled)} of {threshold.n_classes} predicted classes have fewer than {needed} calibration samples, "
            f"which a false-alarm rate of {threshold.false_alarm_rate:g} needs: {named}. They "
            "share the threshold of all classes and have no guarantee of their own: calibrate on more samples, or ask "
            "for a higher rate",
            PooledClassesWarning,
            stacklevel=5,
        )


def _computable(scores: Array) -> tuple[Array, Array]:
    """Return scores as an array, and as the floating-point array to compute with."""
    given = as_array(scores)
    rows = to_compute(given)
    return given, rows if is_real_floating(rows) else namespace(rows).astype(rows, namespace(rows).float64)
