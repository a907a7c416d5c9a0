"""A table as lines of text, before any format.

An IND-OOD pair takes up to four lines, one above the other: ours, ODIN without an oracle, the paper's and the
difference. A cell measured on a network trained anew is marked †, a set made anew ‡. A cell without a result is
"not run (1)", and the first note below the table has the reason.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING

from pnml.report.labels import label
from pnml_bench.tables import Cell, Numbers, Row

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml_bench.tables import Table


RETRAINED, REMADE = "†", "‡"
"""The marks of cells that were measured on a network trained anew, and of image sets made anew."""

LEGEND = f"{RETRAINED} measured on a network trained anew, all other numbers of ours on the paper's own."
OURS, WITHOUT_ORACLE, PAPER, DIFFERENCE = "ours", "ODIN, no oracle", "paper", "difference"


@dataclass(frozen=True)
class Line:
    """One line of a table.

    Attributes:
        ind, ood: the names of the sets.
        kind: "ours", "ODIN, no oracle", "paper" or "difference".
        cells: their texts.
        networks: what each cell was measured on: "own", "retrained" or "none".
        ind_span, ood_span: how many lines share the in-distribution set and the pair: in full on the first of them, 0
            on the others.
    """

    ind: str
    ood: str
    kind: str
    cells: tuple[str, ...]
    networks: tuple[str, ...]
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
    """Return the lines of a table: two for a pair of which nothing was run, more for the others.

    >>> from pnml_bench.tables import Sources
    >>> from pnml_bench.tables import build_tables
    >>> for line in lines(build_tables(Sources([]))[0])[:2]:
    ...     print(line.ind, line.ood, line.kind, line.cells[:2])
    CIFAR-100 iSUN ours ('not run (1)', 'not run (1)')
    CIFAR-100 iSUN paper ('69.7 / 96.4', '84.5 / 96.7')
    """
    decimals = 2 if table.name == "imagenet30" else 1
    reasons = _reasons(table)
    laid: list[Line] = []
    for _, rows in groupby(table.rows, lambda row: row.ind):
        pairs = [_row_lines(row, decimals, reasons) for row in rows]
        pairs[0][0] = replace(pairs[0][0], ind_span=sum(map(len, pairs)))
        laid += [line for pair in pairs for line in pair]
    return laid


def notes(table: Table) -> list[str]:
    """Return what is to be read below a table: the reasons of cells not run, by number, and what the marks mean."""
    found = [f"({number}) not run: {reason}" for number, reason in enumerate(_reasons(table), start=1)]
    if any(cell.network == "retrained" for cell in table.cells):
        found.append(LEGEND)
    about = [f"{REMADE} {label(cell.ood)}: {cell.notes['ood']}" for cell in table.cells if "ood" in cell.notes]
    return [*found, *dict.fromkeys(about)]


def _reasons(table: Table) -> list[str]:
    """Return the distinct reasons why cells were not run."""
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
        if cell.reason is not None:
            return f"not run ({reasons.index(cell.reason) + 1})"
        return _texts(cell.ours, f".{decimals}f") + RETRAINED * (cell.network == "retrained")

    texts = {OURS: tuple(ours(cell) for cell in row.cells)}
    if any(cell.without_oracle is not None for cell in row.cells):
        texts[WITHOUT_ORACLE] = tuple(_texts(cell.without_oracle or Numbers(), f".{decimals}f") for cell in row.cells)
    texts[PAPER] = tuple(_texts(Numbers(c.paper.alone, c.paper.plus_pnml), f".{decimals}f") for c in row.cells)
    if any(cell.reason is None for cell in row.cells):
        texts[DIFFERENCE] = tuple(_texts(cell.difference, f"+.{decimals}f") for cell in row.cells)
    ood = label(row.ood) + REMADE * any("ood" in cell.notes for cell in row.cells)
    names = {"paper's": "own", "retrained": "retrained", None: "none"}
    networks = tuple(names[cell.network] for cell in row.cells)
    pair = [Line(label(row.ind), ood, kind, cells, networks) for kind, cells in texts.items()]
    return [replace(pair[0], ood_span=len(pair)), *pair[1:]]


def _texts(numbers: Numbers, spec: str) -> str:
    """Return numbers with slashes between, without a third one that is not there."""
    values = astuple(numbers)
    if all(value is None for value in values):
        return "–"
    return " / ".join(_number(value, spec) for value in (values if values[2] is not None else values[:2]))


def _number(value: float | None, spec: str) -> str:
    if value is None:
        return "–"
    text = format(value, spec)
    return text.lstrip("+-") if float(text) == 0 else text.replace("-", "−")
