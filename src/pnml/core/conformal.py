"""The counting behind a conformal threshold: which rank it takes, and where the false-alarm rate then lies."""

from __future__ import annotations

import math
from functools import cache
from numbers import Real
from typing import Any

from pnml.core.beta import beta_quantile

_SLACK = 1e-12  # keeps 0.05 * 100 from losing a rank to rounding


def check_share(name: str, share: Any) -> None:
    """Raise ``ValueError`` for a share of samples, under the name of its argument, that does not lie between 0 and 1.

    >>> check_share("false_alarm_rate", 5)
    Traceback (most recent call last):
        ...
    ValueError: false_alarm_rate must lie between 0 and 1, got 5: 5% is 0.05
    """
    value = float(share) if isinstance(share, Real) else math.nan
    if not 0 < value < 1:
        percent = f": {value:g}% is {value / 100:g}" if 1 <= value < 100 else ""
        raise ValueError(f"{name} must lie between 0 and 1, got {share!r}{percent}")


def flagged_ranks(count: int, false_alarm_rate: float) -> int:
    """Return how many of the ranks of a fresh score among ``count`` calibration scores are flagged; 0 for too few.

    >>> flagged_ranks(99, 0.05), flagged_ranks(18, 0.05)
    (5, 0)
    """
    return min(count, math.floor((count + 1) * false_alarm_rate * (1 + _SLACK)))


def least_count(false_alarm_rate: float) -> int:
    """Return how many calibration scores a false-alarm rate needs at least.

    >>> least_count(0.05), least_count(0.01)
    (19, 99)
    """
    return math.ceil((1 - _SLACK) / false_alarm_rate) - 1


@cache
def guaranteed_interval(flagged: int, count: int, confidence: float) -> tuple[float, float]:
    """Return where the false-alarm rate lies of a threshold that flags ``flagged`` ranks of ``count`` + 1.

    Over calibration sets it follows a Beta(flagged, count + 1 − flagged) distribution, whose central interval this is.

    >>> [round(end, 3) for end in guaranteed_interval(5, 99, 0.95)]
    [0.017, 0.1]
    """
    tail = (1 - confidence) / 2
    rest = count + 1 - flagged
    return beta_quantile(tail, flagged, rest), beta_quantile(1 - tail, flagged, rest)


@cache
def observed_interval(flagged: int, count: int, confidence: float) -> tuple[float, float]:
    """Return where a rate lies of which ``flagged`` among ``count`` samples were seen (Clopper and Pearson).

    >>> [round(end, 3) for end in observed_interval(3, 10, 0.95)]
    [0.067, 0.652]
    >>> observed_interval(0, 0, 0.95)
    (0.0, 1.0)
    """
    tail = (1 - confidence) / 2
    low = beta_quantile(tail, flagged, count - flagged + 1) if flagged else 0.0
    high = beta_quantile(1 - tail, flagged + 1, count - flagged) if flagged < count else 1.0
    return low, high
