"""Summaries of scores that add up, so that no machine has to hold all scores."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from pnml.io.store import Part

_DROPPED_BITS = 11  # of the 23 in a float32's significand: bins are 1/4096 wide, relative to the regret


@dataclass(frozen=True)
class Summary:
    """Counts and a histogram of scores; the summaries of two sets of rows add up to that of both.

    Attributes:
        rows: the number of rows scored.
        flagged: the number of rows flagged as out-of-distribution.
        minimum: the smallest regret, in nats; one that is no number counts as infinite here.
        maximum: the largest regret, in nats.
        histogram: the number of regrets in each bin; bins are numbered by the leading bits of a float32.
        skipped: the ids of the images that do not decode.

    >>> from pnml.io.store import Part
    >>> one, other = (Summary.of(Part({"regret": np.array(regret)}, [])) for regret in ([0.25], [0.5, 0.75]))
    >>> both = one + other
    >>> both.rows, both.quantile(0), both.quantile(1), round(both.quantile(0.5), 3)
    (3, 0.25, 0.75, 0.5)
    """

    rows: int = 0
    flagged: int = 0
    minimum: float = math.inf
    maximum: float = -math.inf
    histogram: dict[int, int] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()

    @classmethod
    def of(cls, part: Part) -> Summary:
        """Summarise a part of a table of scores."""
        regret = part.columns["regret"]
        if not len(regret):
            return cls(skipped=tuple(part.skipped))
        regret = np.where(np.isnan(regret), np.inf, regret)  # flagged whatever the threshold, so larger than all others
        flagged = int(part.columns["is_ood"].sum()) if "is_ood" in part.columns else 0
        bins, counts = np.unique(regret.astype(np.float32).view(np.int32) >> _DROPPED_BITS, return_counts=True)
        histogram = dict(zip(bins.tolist(), counts.tolist(), strict=True))
        return cls(len(regret), flagged, float(regret.min()), float(regret.max()), histogram, tuple(part.skipped))

    def quantile(self, share: float) -> float:
        """Return the regret in nats that ``share`` of the rows do not exceed, to about 0.01 %."""
        rank = max(1, math.ceil(share * self.rows))
        if rank in {1, self.rows}:
            return self.minimum if rank == 1 else self.maximum
        bins = sorted(self.histogram)
        counts = np.cumsum([self.histogram[number] for number in bins])
        chosen = bins[int(np.searchsorted(counts, rank))]
        middle = np.int32((chosen << _DROPPED_BITS) + (1 << (_DROPPED_BITS - 1))).view(np.float32)
        return min(max(float(middle), self.minimum), self.maximum)

    def __add__(self, other: Summary) -> Summary:
        return Summary(
            self.rows + other.rows,
            self.flagged + other.flagged,
            min(self.minimum, other.minimum),
            max(self.maximum, other.maximum),
            dict(Counter(self.histogram) + Counter(other.histogram)),
            self.skipped + other.skipped,
        )

    def to_json(self) -> str:
        """Return the fields as JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Summary:
        """Return the summary that :meth:`to_json` wrote."""
        fields = json.loads(text)
        histogram = {int(number): count for number, count in fields["histogram"].items()}
        return cls(**{**fields, "histogram": histogram, "skipped": tuple(fields["skipped"])})
