"""Read embeddings from ``.csv`` files: a header, a line for every row, a column for every feature."""

from __future__ import annotations

import re
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from pnml.io.csv_records import find_records
from pnml.io.feature_columns import PREFIX, choose_columns, choose_layers
from pnml.io.fingerprint import fingerprint_path
from pnml.io.regroup import regroup
from pnml.io.source import RowReader
from pnml.io.texts import as_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.io.csv_records import CsvRecords

_CELLS = 1 << 17  # that are held as text at a time, which takes ten times the memory of numbers
_SAMPLE = 256  # records that decide about the precision
_FLOAT32_DIGITS = 9  # as many as a float32 needs


def open_csv(path: Path, layers: Sequence[str] | None = None, columns: Sequence[str] | None = None) -> RowReader:
    """Open a ``.csv`` whose columns of numbers are the features, in order; ``id`` is optional, and text is left out.

    A first column without a name, as pandas writes its index, is the id if no column has that name. If the numbers of
    the first 256 rows are float32, or have no more than nine digits, all are read as float32, else as float64.

    It holds embeddings alone: naming ``layers`` raises ``ValueError``.

    Args:
        path: the file.
        layers: None or empty.
        columns: the columns of the embedding, in order; all columns of numbers when None.
    """
    choose_layers(path, (), layers)
    table = find_records(path)
    _check_header(table)
    id_column = _id_column(table.names)
    first = next(table.rows(0, 1), None)
    numeric = [name for number, name in enumerate(table.names) if number != id_column and _may_be_number(first, number)]
    chosen = choose_columns(path, numeric, columns) if columns else numeric
    if not chosen:
        raise ValueError(f"{path} has no columns of numbers, only {', '.join(table.names)}")
    numbers = [table.names.index(name) for name in chosen]
    dtype = _precision(table, numbers)

    def batches(start: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for lines, cells in table.rows(start, size):
            values = _to_numbers(table, lines, cells, numbers).astype(dtype)
            if id_column is None:
                ids = np.arange(start, start + len(cells))
            else:
                ids = as_texts(row[id_column] for row in cells)
                if "" in ids:
                    line = lines[int((ids == "").argmax())]
                    raise ValueError(f"line {line} of {path} has no id: give every row one, or leave the column out")
            start += len(cells)
            yield ids, values

    def read(start: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        return regroup(batches(start, max(1, min(size, _CELLS // len(table.names)))), size)

    id_bytes = 0 if id_column is None else path.stat().st_size // max(1, table.count)
    fingerprint = partial(fingerprint_path, path)
    return RowReader(path, table.count, read, fingerprint, (), len(numbers), (), (*chosen,), id_bytes)


def _check_header(table: CsvRecords) -> None:
    """Refuse a header of numbers, which is a row, unless it counts from 0, as pandas does; and names given twice."""
    counted = [str(number) for number in range(len(table.names))]
    if all(_is_number(name) for name in table.names) and (len(counted) == 1 or [*table.names] != counted):
        raise ValueError(
            f"the first line of {table.path} holds numbers, where a header is expected: begin the file with names, as "
            f"{','.join(f'f{number}' for number in range(min(3, len(counted))))}{',...' if len(counted) > 3 else ''}"
        )
    if features := [name for name in table.names if name.startswith(PREFIX)]:
        raise ValueError(
            f"{table.path} has a column {features[0]!r}: features of earlier layers go into .npz or .parquet"
        )
    twice = [name for number, name in enumerate(table.names) if name in table.names[:number]]
    if twice:
        raise ValueError(f"{table.path} has two columns named {twice[0]!r}: rename one")


def _id_column(names: Sequence[str]) -> int | None:
    named = [number for number, name in enumerate(names) if name.lower() == "id"]
    if named:
        return named[0]
    return 0 if names[0] == "" and len(names) > 1 else None


def _may_be_number(first: tuple[list[int], list[list[str]]] | None, number: int) -> bool:
    """Return whether the first row has a number, also with a decimal comma, or nothing in a column."""
    if first is None:
        return True
    cell = first[1][0][number].strip()
    return not cell or _is_number(cell.replace(",", "."))


def _precision(table: CsvRecords, numbers: Sequence[int]) -> type[np.floating[Any]]:
    """Return float32 where the first rows are such numbers, or have no more digits than it takes to write one.

    What was float32 has to be scored as such: its rounding errors are no signal.
    """
    for _, cells in table.rows(0, _SAMPLE):
        chosen = [row[number] for row in cells for number in numbers]
        if max(map(_significant_digits, chosen)) <= _FLOAT32_DIGITS or all(map(_is_float32, chosen)):
            return np.float32
        break
    return np.float64


def _is_float32(cell: str) -> bool:
    """Return whether a cell is, digit for digit, a number that float32 has.

    >>> _is_float32("1.000000014901161194e-01"), _is_float32("0.1")
    (True, False)
    """
    with np.errstate(over="ignore"):
        return _is_number(cell) and float(np.float32(float(cell))) == float(cell)


def _significant_digits(cell: str) -> int:
    """Return the number of digits of a number, zeros at its beginning not counted.

    >>> [_significant_digits(cell) for cell in ("-0.00120", "1.5e-10", "0")]
    [3, 2, 0]
    """
    return len(re.sub(r"[eE].*|[^0-9]", "", cell).lstrip("0"))


def _to_numbers(
    table: CsvRecords, lines: Sequence[int], cells: Sequence[Sequence[str]], numbers: Sequence[int]
) -> NDArray[np.float64]:
    try:
        values = np.array([[row[number] for number in numbers] for row in cells], dtype=np.float64)
    except ValueError:
        values = None
    if values is None or not np.isfinite(values).all():
        _refuse_cell(table, lines, cells, numbers)
    return values


def _refuse_cell(
    table: CsvRecords, lines: Sequence[int], cells: Sequence[Sequence[str]], numbers: Sequence[int]
) -> NoReturn:
    """Raise ``ValueError`` for the first cell that is no finite number."""
    line, number, cell = next(
        (line, number, row[number])
        for line, row in zip(lines, cells, strict=True)
        for number in numbers
        if not _is_number(row[number]) or not np.isfinite(float(row[number]))
    )
    held, column = repr(cell) if cell.strip() else "nothing", table.names[number]
    has_comma = "," in cell and _is_number(cell.replace(",", ".", 1))
    advice = "write it with a point" if has_comma else "fill it in, or leave the row out"
    raise ValueError(
        f"line {line} of {table.path} holds {held} in column {column!r}, where a finite number is expected: {advice}"
    )


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True
