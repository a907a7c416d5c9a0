"""What is said about a table of scores that no single machine holds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pnml.io.parts import Columns


@dataclass(frozen=True)
class Summary:
    """Counts and extremes of scores; those of two sets of rows add up.

    Attributes:
        rows: how many rows were scored.
        flagged: how many of them are called out-of-distribution.
        least: the smallest regret, in nats.
        most: the largest.
        total: the sum of all.
        skipped: the images that did not decode.

    >>> Summary(1, 0, 0.25, 0.25, 0.25) + Summary(2, 1, 0.5, 0.75, 1.25)
    Summary(rows=3, flagged=1, least=0.25, most=0.75, total=1.5, skipped=())
    """

    rows: int = 0
    flagged: int = 0
    least: float = float("inf")
    most: float = float("-inf")
    total: float = 0.0
    skipped: tuple[str, ...] = ()

    @classmethod
    def of(cls, columns: Columns, skipped: list[str]) -> Summary:
        """Summarise columns of scores."""
        regret = columns["regret"].astype(float)
        if not len(regret):
            return cls(skipped=tuple(skipped))
        flagged = int(columns["is_ood"].sum()) if "is_ood" in columns else 0
        total = float(regret.sum())
        return cls(len(regret), flagged, float(regret.min()), float(regret.max()), total, tuple(skipped))

    @property
    def mean(self) -> float:
        """The mean regret, in nats."""
        return self.total / self.rows

    def __add__(self, other: Summary) -> Summary:
        return Summary(
            self.rows + other.rows,
            self.flagged + other.flagged,
            min(self.least, other.least),
            max(self.most, other.most),
            self.total + other.total,
            self.skipped + other.skipped,
        )

    def to_json(self) -> dict[str, Any]:
        """Give the fields as JSON has them."""
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Summary:
        """Read what :meth:`to_json` gave."""
        return cls(**{**fields, "skipped": tuple(fields["skipped"])})
