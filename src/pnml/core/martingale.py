"""A test martingale: a fortune that bets against uniform p-values, and may be looked at any time.

Each bet (a, q) claims that the share of p-values up to a is q from now on. Against uniform p-values no bet gains on
average, so by Ville's inequality the fortune ever reaches 1/α with probability α at most. The fortune is spread evenly
over all bets and, because a change may come at any time, over all samples at which to start betting: the share
1/log₂(j + 1) − 1/log₂(j + 2) of it waits for sample j. These shares sum to 1, and fall so slowly that a late change
costs only the logarithm of its sample number.
"""

from __future__ import annotations

from itertools import starmap
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEVELS = (0.01, 0.05, 0.2, 0.5, 0.8, 0.95)
BETS = (
    *((0.01, share) for share in (0.02, 0.05, 0.2, 0.6)),
    *((0.05, share) for share in (0.1, 0.2, 0.45, 0.9)),
    *((0.2, share) for share in (0.3, 0.5, 0.8)),
    *((0.5, share) for share in (0.6, 0.75, 0.95)),
    *((0.5, share) for share in (0.4, 0.25, 0.05)),
    *((0.8, share) for share in (0.7, 0.5, 0.2)),
    *((0.95, share) for share in (0.9, 0.75, 0.3)),
)
"""Levels a and shares q: above a for scores that grew, below a for scores that fell."""

_NOTHING = -1e300  # the logarithm of a fortune that is not there yet
STATE = ("gains", "started", "lowest", "lowest_at")


def _log_factors(level: float, share: float) -> list[float]:
    """Return the logarithm of what a bet multiplies its fortune by, for p-values between neighbouring levels."""
    return [
        float(np.log(share / level)) if one <= level else float(np.log((1 - share) / (1 - level)))
        for one in (*LEVELS, 1.0)
    ]


_LOG_FACTORS = np.array(list(starmap(_log_factors, BETS)))


class Martingale:
    """The fortune of all bets, of one stream or of many side by side.

    Args:
        streams: the shape of many streams; none for one.

    Attributes:
        count: the number of p-values seen of each stream.
        gains: the log-fortune of each bet if all of it had started with the first sample, shape (bets, ...).
        started: log Σ_j w_j / (the fortune of that bet before sample j), over all samples j seen, shape (bets, ...).
        lowest: the smallest of ``gains`` so far, shape (bets, ...).
        lowest_at: the sample after it, counted from 1, shape (bets, ...).

    >>> martingale = Martingale()
    >>> bool(martingale.grow(np.full(9, 0.003))[-1] > np.log(1e9))
    True
    >>> int(martingale.since)
    1
    """

    def __init__(self, streams: tuple[int, ...] = ()) -> None:
        shape = len(BETS), *streams
        self.count = 0
        self.gains, self.started = np.zeros(shape), np.full(shape, _NOTHING)
        self.lowest, self.lowest_at = np.zeros(shape), np.ones(shape, np.int64)

    def grow(self, p_values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Bet on p-values, one after the other, and return the log-evidence after each.

        The evidence is what a fortune of 1 has become. Its state after many p-values does not depend on how these are
        cut into batches.

        Args:
            p_values: shape (m, ...).
        """
        if not len(p_values):
            return np.zeros(p_values.shape)
        numbers = _along_first(self.count + 1 + np.arange(len(p_values)), p_values.ndim)
        factors = _LOG_FACTORS[:, np.searchsorted(LEVELS, p_values)]
        gains = np.add.accumulate(np.concatenate([self.gains[:, None], factors], axis=1), axis=1)
        before, after = gains[:, :-1], gains[:, 1:]
        starts = np.concatenate([self.started[:, None], _log_weight(numbers) - before], axis=1)
        started = np.logaddexp.accumulate(starts, axis=1)[:, 1:]
        self._note_lowest(before, numbers)
        self.count, self.gains, self.started = self.count + len(p_values), after[:, -1], started[:, -1]
        fortunes = started + after
        largest = fortunes.max(axis=0)
        betting = largest + np.log(np.exp(fortunes - largest).mean(axis=0))
        found: NDArray[np.float64] = np.logaddexp(betting, _log_waiting(numbers))
        return found

    @property
    def since(self) -> NDArray[np.int64]:
        """The sample, counted from 1, from which on one bet has gained most: the likely change, shape (...)."""
        bet = (self.gains - self.lowest).argmax(axis=0)
        found: NDArray[np.int64] = np.take_along_axis(self.lowest_at, bet[None], axis=0)[0]
        return found

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays."""
        return {name: getattr(self, name) for name in STATE}

    @classmethod
    def restore(cls, count: int, arrays: dict[str, NDArray[Any]]) -> Martingale:
        """Return the martingale that had these ``arrays`` after ``count`` p-values."""
        found = cls()
        found.count = count
        for name in STATE:
            setattr(found, name, arrays[name])
        return found

    def _note_lowest(self, before: NDArray[np.float64], numbers: NDArray[np.int64]) -> None:
        """Note where the log-fortune of each bet was smallest, given what it was before each sample."""
        at = before.argmin(axis=1)[:, None]
        lowest = np.take_along_axis(before, at, axis=1)[:, 0]
        is_new = lowest < self.lowest
        self.lowest_at = np.where(is_new, at[:, 0] + numbers[0], self.lowest_at)
        self.lowest = np.where(is_new, lowest, self.lowest)


def _along_first(numbers: NDArray[np.int64], dimensions: int) -> NDArray[np.int64]:
    return numbers.reshape(-1, *[1] * (dimensions - 1))


def _log_weight(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the logarithm of the share that starts to bet at each sample: 1/log₂(j + 1) − 1/log₂(j + 2)."""
    shares = np.log(2) * np.log1p(1 / (numbers + 1)) / (np.log(numbers + 1) * np.log(numbers + 2))
    found: NDArray[np.float64] = np.log(shares)
    return found


def _log_waiting(numbers: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the logarithm of the share that still waits after each sample: 1/log₂(j + 2)."""
    found: NDArray[np.float64] = np.log(np.log(2) / np.log(numbers + 2))
    return found
