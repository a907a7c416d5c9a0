"""Thresholds with a guarantee: a score above which a sample is called out-of-distribution.

Split conformal prediction: of n scores of in-distribution data that the detector was not fitted on, take the k-th
smallest with ``k = ⌈(n + 1)(1 − α)⌉``. A fresh in-distribution score exceeds it with probability at most α, whatever
the distribution of the scores. That is an average over calibration sets; for the one at hand the realised false-alarm
rate follows a Beta(n + 1 − k, k) distribution (ties only lower it), whose central interval is reported beside it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pnml.backend.arrays import Array, DeviceConstants, as_array, namespace, to_numpy
from pnml.core.beta import beta_quantile


@dataclass(frozen=True)
class Threshold:
    """A calibrated threshold on the regret and how it was set.

    Attributes:
        value: regret in nats; a sample is out-of-distribution when its regret is larger.
        false_alarm_rate: the target α, the expected share of in-distribution samples flagged is at most this.
        interval: where the realised false-alarm rate lies with probability ``confidence``.
        confidence: the coverage of ``interval``.
        source: "held-out" or "leave-one-out".
        scores: the sorted in-distribution scores it was set from, for p-values.
    """

    value: float
    false_alarm_rate: float
    interval: tuple[float, float]
    confidence: float
    source: str
    scores: np.ndarray[Any, Any] = field(repr=False, compare=False)

    @property
    def count(self) -> int:
        """How many scores the threshold was set from."""
        return len(self.scores)

    def p_value(self, scores: Array) -> Array:
        """Return the conformal p-value of each score: the share of calibration scores at least as large, in (0, 1].

        >>> threshold = calibrate(np.arange(99.0), false_alarm_rate=0.05)
        >>> threshold.p_value(np.array([-1.0, 97.5, 1000.0]))
        array([1.  , 0.02, 0.01])
        """
        scores = as_array(scores)
        xp = namespace(scores)
        (held,) = self._constants.to(scores)
        below = xp.searchsorted(held, scores, side="left")
        return xp.astype(1 + self.count - below, scores.dtype) / (self.count + 1)

    def is_ood(self, scores: Array) -> Array:
        """Return whether each score exceeds the threshold; a score that is no number does."""
        return ~(as_array(scores) <= self.value)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_constants", DeviceConstants(self.scores))

    _constants: DeviceConstants = field(init=False, repr=False, compare=False)


def calibrate(
    scores: Array, *, false_alarm_rate: float = 0.05, confidence: float = 0.95, source: str = "held-out"
) -> Threshold:
    """Set a threshold from in-distribution scores so that at most ``false_alarm_rate`` of fresh ones exceed it.

    Args:
        scores: regrets of in-distribution samples, shape (n,).
        false_alarm_rate: α in (0, 1).
        confidence: coverage of the interval given for the realised rate.
        source: where the scores come from, recorded in the result.

    >>> calibrate(np.arange(99.0), false_alarm_rate=0.05).value
    94.0
    """
    for name, share in (("false_alarm_rate", false_alarm_rate), ("confidence", confidence)):
        if not 0 < share < 1:
            raise ValueError(f"{name} must lie between 0 and 1, got {share}")
    values = to_numpy(as_array(scores))
    if values.ndim != 1:
        raise ValueError(f"expected scores of shape (n,), got shape {values.shape}")
    if not np.isfinite(values).all():
        bad = int(np.isfinite(values).argmin())
        raise ValueError(f"score {bad} is {values[bad]}: calibration scores must be finite")
    held = np.sort(values)
    n = len(held)
    # (n + 1) α counts whole flagged ranks; the slack keeps 0.05 * 100 from losing one to rounding.
    flagged = min(n, math.floor((n + 1) * false_alarm_rate * (1 + 1e-12)))
    if flagged < 1:
        raise ValueError(
            f"{n} calibration samples cannot support a false-alarm rate of {false_alarm_rate}: use at least "
            f"{math.ceil((1 - 1e-12) / false_alarm_rate) - 1} samples or a higher rate"
        )
    k = n + 1 - flagged
    tail = (1 - confidence) / 2
    interval = (beta_quantile(tail, flagged, k), beta_quantile(1 - tail, flagged, k))
    return Threshold(float(held[k - 1]), false_alarm_rate, interval, confidence, source, held)
