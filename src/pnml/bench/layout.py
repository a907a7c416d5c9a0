"""A table as lines of text, before any format.

An IND-OOD pair takes three lines, ours, the paper's and the difference, one above the other. A cell without a result is
"not run (1)", and the first note below the table has the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from pnml.bench.tables import Cell, Pair, Row
from pnml.report.labels import label

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml.bench.tables import Table


@dataclass(frozen=True)
class Line:
    """One line of a table; ``kind`` is "ours", "paper" or "difference".

    ``ind_span`` and ``ood_span`` count the lines that share the in-distribution set and the pair: in full on the first
    of them, 0 on the others.
    """

    ind: str
    ood: str
    kind: str
    cells: tuple[str, ...]
    ind_span: int = 0
    ood_span: int = 0

    @property
    def texts(self) -> tuple[str, ...]:
        """The text of every column, with the names of the sets only where they are new."""
        return (self.ind if self.ind_span else "", self.ood if self.ood_span else "", self.kind, *self.cells)


def header(table: Table) -> tuple[str, ...]:
    """Return the headings of all columns: IND, OOD, the kind of line, and the table's own."""
    return ("IND", "OOD", "Values", *table.columns)


def lines(table: Table) -> list[Line]:
    """Return the lines of a table: three for a pair of which anything was run, two for the others.

    >>> from pnml.bench.tables import build_tables
    >>> for line in lines(build_tables([])[0])[:2]:
    ...     print(line.ind, line.ood, line.kind, line.cells[:2])
    CIFAR-100 iSUN ours ('not run (1)', 'not run (1)')
    CIFAR-100 iSUN paper ('69.7 / 96.4', '84.5 / 96.7')
    """
    decimals = 2 if table.name == "imagenet30" else 1
    reasons = notes(table)
    laid: list[Line] = []
    for _, rows in groupby(table.rows, lambda row: row.ind):
        pairs = [_row_lines(row, decimals, reasons) for row in rows]
        pairs[0][0] = replace(pairs[0][0], ind_span=sum(map(len, pairs)))
        laid += [line for pair in pairs for line in pair]
    return laid


def notes(table: Table) -> list[str]:
    """Return the distinct reasons why cells were not run, in the order of their numbers (1, 2, ...)."""
    return list(dict.fromkeys(cell.reason for cell in table.cells if cell.reason is not None))


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """Return rows, the headings first, as a Markdown table with columns of equal width.

    >>> print(markdown_table([("OOD", "AUROC"), ("SVHN", "98.4")]))
    | OOD  | AUROC |
    |------|-------|
    | SVHN | 98.4  |
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = ["| " + " | ".join(map(str.ljust, row, widths)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def _row_lines(row: Row, decimals: int, reasons: list[str]) -> list[Line]:
    def ours(cell: Cell) -> str:
        if cell.reason is None:
            return _pair(cell.ours, f".{decimals}f")
        return f"not run ({reasons.index(cell.reason) + 1})"

    texts = {
        "ours": tuple(ours(cell) for cell in row.cells),
        "paper": tuple(_pair(Pair(c.paper.alone, c.paper.plus_pnml), f".{decimals}f") for c in row.cells),
    }
    if any(cell.reason is None for cell in row.cells):
        texts["difference"] = tuple(_pair(cell.difference, f"+.{decimals}f") for cell in row.cells)
    pair = [Line(label(row.ind), label(row.ood), kind, cells) for kind, cells in texts.items()]
    return [replace(pair[0], ood_span=len(pair)), *pair[1:]]


def _pair(pair: Pair, spec: str) -> str:
    if pair == Pair():
        return "–"
    return f"{_number(pair.alone, spec)} / {_number(pair.plus_pnml, spec)}"


def _number(value: float | None, spec: str) -> str:
    if value is None:
        return "–"
    text = format(value, spec)
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")
