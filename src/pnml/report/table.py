"""A table of a report."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of texts and percentages.

    Attributes:
        title: the heading above the table.
        columns: the column headings. A pair (group, heading) places adjacent columns of the same group under a common
            heading; the largest number of a group is bold.
        rows: one entry per column: a text, a number, or None for a missing value.
        note: a text below the table.
    """

    title: str
    columns: tuple[str | tuple[str, str], ...]
    rows: tuple[tuple[str | float | None, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {number} of table {self.title!r} has {len(row)} entries: expected {len(self.columns)}, "
                    "one per column"
                )
