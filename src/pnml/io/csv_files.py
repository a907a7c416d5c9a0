"""Read embeddings from ``.csv`` files: a header, a line for every row, a column for every feature."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.io.feature_columns import PREFIX, check_distinct, choose_columns, choose_layers
from pnml.io.source import RowReader
from pnml.io.texts import as_texts

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

_CELLS = 1 << 17  # that are held as text at a time, which takes ten times the memory of numbers
_MOST_BYTES = 1 << 24  # of a line
_SAMPLE = 256  # records that decide about the precision
_FLOAT32_DIGITS = 9  # as many as a float32 needs
_DELIMITERS = (",", ";", "\t")


def open_csv(path: Path, layers: Sequence[str] | None = None, columns: Sequence[str] | None = None) -> RowReader:
    """Open a ``.csv`` whose columns of numbers are the features, in order; ``id`` is optional, and text is left out.

    A first column without a name, as pandas writes its index, is the id if no column has that name. If the numbers of
    the first 256 rows are float32, or have no more than nine digits, all are read as float32, else as float64.

    It holds embeddings alone: naming ``layers`` raises ``ValueError``. ``columns`` are those of the embedding, in
    order; all columns of numbers when None.
    """
    choose_layers(path, (), layers)
    table = find_records(path)
    _check_header(table)
    id_column = _id_column(table.names)
    chosen = _numeric_columns(table, id_column)
    if columns:
        chosen = choose_columns(path, chosen, columns)
    if not chosen:
        raise ValueError(f"{path} has no columns of numbers, only {', '.join(table.names)}")
    numbers = [table.names.index(name) for name in chosen]
    dtype = _precision(table, numbers)
    step = max(1, _CELLS // len(table.names))

    def read(start: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        records = table.records(start)
        while start < table.count:
            ids: list[str] = []
            rows = []
            for first in range(0, size, step):
                batch = list(islice(records, min(step, size - first)))
                if batch:
                    rows.append(_to_numbers(table, batch, numbers).astype(dtype))
                    ids += _ids(table, batch, id_column)
            if not rows:
                raise ValueError(f"{path} changed while it was read: run the command again")
            values = np.concatenate(rows)
            numbered = np.arange(start, start + len(values))
            start += len(values)
            yield numbered if id_column is None else as_texts(ids), values

    id_bytes = 0 if id_column is None else path.stat().st_size // max(1, table.count)
    return RowReader(path, table.count, read, width=len(chosen), columns=tuple(chosen), id_bytes=id_bytes)


class Record(NamedTuple):
    """One record: its first line, counted from 1, and its cells."""

    line: int
    cells: list[str]


@dataclass(frozen=True)
class CsvTable:
    """The header of a CSV file: the delimiter that it has most of, its cells, and the number of records after it."""

    path: Path
    delimiter: str
    names: tuple[str, ...]
    count: int

    def records(self, start: int) -> Iterator[Record]:
        """Yield the records from number ``start`` on; raise ``ValueError`` for one that does not fit the header."""
        for record in islice(_records(self.path, self.delimiter), start + 1, None):
            if len(record.cells) != len(self.names):
                comma = "; decimals need a point, not a comma" if len(record.cells) > len(self.names) else ""
                raise ValueError(
                    f"line {record.line} of {self.path} has {len(record.cells)} cells, the header {len(self.names)}: "
                    f"repair it{comma}"
                )
            yield record


def find_records(path: Path) -> CsvTable:
    """Read the header, and count the records after it, in one pass."""
    with path.open("rb") as file:
        header = file.readline(_MOST_BYTES)
    delimiter = max(_DELIMITERS, key=lambda one: header.count(one.encode()))
    records = _records(path, delimiter)
    first = next(records, None)
    if first is None:
        raise ValueError(f"{path} is empty: expected a header, and a line for every row")
    return CsvTable(path, delimiter, tuple(name.strip() for name in first.cells), sum(1 for _ in records))


def _records(path: Path, delimiter: str) -> Iterator[Record]:
    """Yield the records of a file, the header first; blank lines are left out, and a quoted cell may hold line ends."""
    line = 1  # the first of the next record
    with path.open("rb") as file:
        reader = csv.reader(_lines(path, file), delimiter=delimiter, strict=True)
        try:
            for cells in reader:
                if len(cells) > 1 or "".join(cells).strip():
                    yield Record(line, cells)
                line = reader.line_num + 1
        except csv.Error as error:
            raise ValueError(f"line {line} of {path} is no CSV ({error}): close its quotes, or repair it") from error


def _lines(path: Path, file: IO[bytes]) -> Iterator[str]:
    for number, content in enumerate(iter(partial(file.readline, _MOST_BYTES), b""), 1):
        if len(content) == _MOST_BYTES:
            raise ValueError(
                f"line {number} of {path} has {_MOST_BYTES:,} bytes or more: no CSV has such lines, repair it"
            )
        try:
            yield content.decode("utf-8-sig" if number == 1 else "utf-8")  # Excel begins a file with a mark
        except UnicodeDecodeError as error:
            raise ValueError(
                f"line {number} of {path} is no UTF-8 text ({error}): write the file again as UTF-8"
            ) from error


def _check_header(table: CsvTable) -> None:
    """Refuse a header of numbers, which is a row, unless it counts from 0, as pandas does; and names given twice."""
    counted = tuple(str(number) for number in range(len(table.names)))
    if all(map(_is_number, table.names)) and (len(counted) == 1 or table.names != counted):
        names = [f"f{number}" for number in counted[:3]] + ["..."] * (len(counted) > 3)
        raise ValueError(
            f"the first line of {table.path} holds numbers, where a header is expected: begin the file with names, as "
            f"{','.join(names)}"
        )
    features = [name for name in table.names if name.startswith(PREFIX)]
    if features:
        raise ValueError(
            f"{table.path} has a column {features[0]!r}: features of earlier layers go into .npz or .parquet"
        )
    check_distinct(table.path, table.names)


def _id_column(names: Sequence[str]) -> int | None:
    named = [number for number, name in enumerate(names) if name.lower() == "id"]
    if named:
        return named[0]
    return 0 if names[0] == "" and len(names) > 1 else None


def _ids(table: CsvTable, records: Sequence[Record], column: int | None) -> list[str]:
    """Return the ids of records, none without a column of ids; raise ``ValueError`` for an empty one."""
    if column is None:
        return []
    for record in records:
        if not record.cells[column]:
            raise ValueError(
                f"line {record.line} of {table.path} has no id: give every row one, or leave the column out"
            )
    return [record.cells[column] for record in records]


def _numeric_columns(table: CsvTable, id_column: int | None) -> list[str]:
    """Return the columns that have a number, however it is written, or nothing in the first row."""
    first = next(table.records(0), None)
    cells = [""] * len(table.names) if first is None else first.cells
    return [
        name
        for number, (name, cell) in enumerate(zip(table.names, cells, strict=True))
        if number != id_column and (not cell.strip() or _resembles_number(cell))
    ]


def _precision(table: CsvTable, numbers: Sequence[int]) -> type[np.floating[Any]]:
    """Return float32 where the first rows are such numbers, or have no more digits than it takes to write one.

    What was float32 has to be scored as such: its rounding errors are no signal.
    """
    cells = [record.cells[number] for record in islice(table.records(0), _SAMPLE) for number in numbers]
    if not cells:
        return np.float64
    if max(map(_significant_digits, cells)) <= _FLOAT32_DIGITS or all(map(_is_float32, cells)):
        return np.float32
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


def _to_numbers(table: CsvTable, records: Sequence[Record], numbers: Sequence[int]) -> NDArray[np.float64]:
    """Return the numbers of records; raise ``ValueError`` for the first cell that is no finite number."""
    cells = [[record.cells[number] for number in numbers] for record in records]
    text = "".join(map("".join, cells))
    if text.isascii() and "_" not in text:  # as _is_number asks of every cell
        try:
            values = np.array(cells, dtype=np.float64)
        except ValueError:
            values = np.array(np.nan)
        if np.isfinite(values).all():
            return values
    line, number, cell = next(
        (record.line, number, record.cells[number])
        for record in records
        for number in numbers
        if not _is_number(record.cells[number]) or not np.isfinite(float(record.cells[number]))
    )
    if _resembles_number(cell) and not _is_number(cell):
        advice = "write it with the digits 0 to 9 and a point, as 1000.5"
    else:
        advice = "fill it in, or leave the row out"
    raise ValueError(
        f"line {line} of {table.path} holds {repr(cell) if cell.strip() else 'nothing'} in column "
        f"{table.names[number]!r}, where a finite number is expected: {advice}"
    )


def _is_number(cell: str) -> bool:
    """Return whether a cell is a number as other programs read it, too.

    >>> [_is_number(cell) for cell in ("-1.5e3", "1_000.5", "\u0661\u0662", "1,5")]
    [True, False, False, False]
    """
    return cell.isascii() and "_" not in cell and _is_float(cell)


def _resembles_number(cell: str) -> bool:
    """Return whether a cell is meant as a number: with separators of thousands, a decimal comma, or other digits.

    >>> [_resembles_number(cell) for cell in ("1_000.5", "1.000,5", "1,000.5", "\u0661\u0662", "12.03.2024")]
    [True, True, True, True, False]
    """
    plain = re.sub("[_'\u2019\u00a0\u202f]", "", cell)
    texts = [plain.replace(",", "."), plain.replace(",", "")]
    if "," in plain:
        texts.append(plain.replace(".", "").replace(",", "."))
    return any(map(_is_float, texts))


def _is_float(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
