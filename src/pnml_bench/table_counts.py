"""How many cells of the paper's tables were measured, on which networks, and how far they are from the paper's."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple, dataclass
from statistics import fmean
from typing import TYPE_CHECKING

from pnml_bench.tables import Numbers

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pnml_bench.table_sources import Network
    from pnml_bench.tables import Cell, Table

NETWORKS: dict[Network, str] = {"paper's": "the paper's own networks", "retrained": "networks trained anew"}
"""What a cell can be measured on, in words."""


@dataclass(frozen=True)
class Counts:
    """Cells of some tables.

    Attributes:
        cells: how many there are.
        measured: how many were measured on each kind of network.
        difference: the mean absolute differences to the paper on each kind of network, in points.
        reasons: how many were not run for each reason.
    """

    cells: int
    measured: dict[Network, int]
    difference: dict[Network, Numbers]
    reasons: dict[str, int]

    def __str__(self) -> str:
        run = sum(self.measured.values())
        text = f"{run} of {self.cells} cells measured"
        if run:
            text += ": " + ", ".join(f"{number} on {NETWORKS[kind]}" for kind, number in self.measured.items())
        if self.reasons:
            text += "; not run: " + ", ".join(f"{number} ({reason})" for reason, number in self.reasons.items())
        return text + "."

    @property
    def differences(self) -> list[str]:
        """A sentence about the mean absolute difference on each kind of network that was measured."""
        return [
            f"Mean absolute difference to the paper on {NETWORKS[kind]}: {_in_words(numbers)}."
            for kind, numbers in self.difference.items()
        ]


def count(tables: Sequence[Table]) -> Counts:
    """Count the cells of some tables and average their absolute differences.

    >>> from pnml_bench.table_sources import Sources
    >>> from pnml_bench.tables import build_tables
    >>> print(count(build_tables(Sources([]))))
    0 of 664 cells measured; not run: 664 (no result).
    """
    cells = [cell for table in tables for cell in table.cells]
    by_network = {kind: [cell for cell in cells if cell.network == kind] for kind in NETWORKS}
    reasons = Counter(cell.reason for cell in cells if cell.reason is not None)
    return Counts(
        cells=len(cells),
        measured={kind: len(found) for kind, found in by_network.items() if found},
        difference={kind: mean_difference(found) for kind, found in by_network.items() if found},
        reasons=dict(reasons.most_common()),
    )


def mean_difference(cells: Iterable[Cell]) -> Numbers:
    """Return the mean absolute differences of some cells to the paper, in points."""
    columns = zip(*(astuple(cell.difference) for cell in cells), strict=True)
    means = ([abs(value) for value in column if value is not None] for column in columns)
    return Numbers(*(fmean(values) if values else None for values in means))


def _in_words(numbers: Numbers) -> str:
    names = "alone", "with pNML", "with pNML by the published arithmetic"
    parts = [f"{name} {value:.2f}" for name, value in zip(names, astuple(numbers), strict=True) if value is not None]
    return ", ".join(parts) + " points"
