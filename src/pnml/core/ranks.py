"""Ranks of new scores among calibration scores and the stream so far: p-values that stay valid for ever.

Compared with one fixed calibration set, the p-values of a long stream share that set's luck: they are uniform on
average over calibration sets, not given yours, and what watches them would see the difference in the end. Here every
score joins the pool that the next one is compared with. If calibration scores and stream are exchangeable, these
p-values are independent and uniform, whatever the size of the calibration set (Vovk, Gammerman and Shafer, 2005).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_KEPT_BITS = 13  # of the 52 of a mantissa: scores that differ by less than 0.012 % are ties
_LARGEST = float(np.finfo(np.float64).max)
_AT_ONCE = 512  # scores of a batch that are compared with each other


class RankPool:
    """Scores seen so far, as counts of rounded scores: the number of different ones is bounded, the stream is not.

    Args:
        scores: of the calibration set, shape (n,), n > 0.

    Attributes:
        keys: the different rounded scores, ascending; the largest stands for scores that are no numbers, too.
        counts: how often each was seen.

    >>> pool = RankPool(np.array([1.0, 2.0, 3.0]))
    >>> above, ties = pool.add(np.array([2.5, 2.0, 9.0]))
    >>> above.tolist(), ties.tolist(), pool.size
    ([1, 2, 0], [0, 1, 0], 6)
    """

    def __init__(self, scores: NDArray[np.float64]) -> None:
        self.keys, self.counts = np.unique(_rounded(scores), return_counts=True)

    @classmethod
    def restore(cls, keys: NDArray[np.float64], counts: NDArray[np.int64]) -> RankPool:
        """Return the pool with these ``keys`` and ``counts``."""
        pool = cls.__new__(cls)
        pool.keys, pool.counts = keys, counts
        return pool

    @property
    def size(self) -> int:
        """How many scores were seen, those of the calibration set included."""
        return int(self.counts.sum())

    def add(self, scores: NDArray[np.float64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Add scores, one after the other.

        Returns:
            How many of those seen before are larger than each score, and how many are ties, both of shape (m,).
        """
        places = self._places(_rounded(scores))
        above, ties = np.empty(len(places), np.int64), np.empty(len(places), np.int64)
        for start in range(0, len(places), _AT_ONCE):
            part = places[start : start + _AT_ONCE]
            here = slice(start, start + len(part))
            up_to = np.cumsum(self.counts)
            earlier = np.tri(len(part), k=-1, dtype=bool)
            above[here] = up_to[-1] - up_to[part] + ((part > part[:, None]) & earlier).sum(axis=1)
            ties[here] = self.counts[part] + ((part == part[:, None]) & earlier).sum(axis=1)
            np.add.at(self.counts, part, 1)
        return above, ties

    def p_values(self, scores: NDArray[np.float64], uniforms: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add scores and return their p-values in (0, 1], shape (m,).

        Args:
            scores: shape (m,).
            uniforms: numbers from (0, 1] that decide between ties, shape (m,).
        """
        seen = self.size + 1 + np.arange(len(scores))
        above, ties = self.add(scores)
        found: NDArray[np.float64] = (above + uniforms * (ties + 1)) / seen
        return found

    def _places(self, keys: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return where in ``self.keys`` each key is, after adding those that are new."""
        wanted = np.unique(keys)
        found = np.searchsorted(self.keys, wanted)
        is_new = self.keys[found.clip(max=len(self.keys) - 1)] != wanted
        if is_new.any():
            self.counts = np.insert(self.counts, found[is_new], 0)
            self.keys = np.insert(self.keys, found[is_new], wanted[is_new])
        return np.searchsorted(self.keys, keys)


def _rounded(scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return scores with the last bits of their mantissas cleared, which keeps their order; NaN is the largest."""
    values = np.nan_to_num(scores, nan=_LARGEST, posinf=_LARGEST).astype(np.float64)
    bits: NDArray[Any] = values.view(np.int64) & ~np.int64((1 << (52 - _KEPT_BITS)) - 1)
    return bits.view(np.float64) + 0.0  # −0.0 is 0.0
