"""A summary of scores in bounded memory, however many there are."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pnml.io.parts import Part

_BINS = 1_000_000


class Tally:
    """Counts over parts of a table of scores, and quantiles of the regret to a millionth of its range.

    Args:
        n_classes: the number C of classes; regrets lie between 0 and log C.
    """

    def __init__(self, n_classes: int) -> None:
        self.rows = 0
        self.flagged = 0
        self.skipped: list[str] = []
        self._largest = math.log(n_classes)
        self._histogram = np.zeros(_BINS, dtype=np.int64)

    def add(self, part: Part) -> None:
        """Count a part."""
        self.skipped += part.skipped
        if not part.columns:
            return
        regret = part.columns["regret"]
        self.rows += len(regret)
        self.flagged += int(part.columns.get("is_ood", np.zeros(0)).sum())
        bins = np.clip(regret / self._largest * _BINS, 0, _BINS - 1) if self._largest > 0 else np.zeros_like(regret)
        np.add.at(self._histogram, bins.astype(np.int64), 1)

    def quantile(self, share: float) -> float:
        """The regret in nats that this share of the rows does not exceed."""
        rank = max(1, math.ceil(share * self.rows))
        return self._largest * (int(np.searchsorted(np.cumsum(self._histogram), rank)) + 0.5) / _BINS
