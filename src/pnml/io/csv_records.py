"""Records of a CSV file: found without reading them, so that reading can begin at any of them."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from itertools import islice
from typing import IO, TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_STRIDE = 1024  # records from one remembered place to the next
_MOST_LINES = 1000  # of one record; more means a quote that is never closed
_MOST_BYTES = 1 << 24  # of the records that are held as text at a time, and of a line
_DELIMITERS = (",", ";", "\t")


class Record(NamedTuple):
    """One record as it stands in the file, its first byte and its first line, counted from 1."""

    offset: int
    line: int
    content: bytes


@dataclass(frozen=True)
class CsvRecords:
    """The header of a CSV file, and where its records are.

    Attributes:
        path: the file.
        delimiter: a comma, a semicolon or a tab, whichever the header has most of.
        names: the cells of the header.
        count: the number of records after the header.
        places: every 1,024th record's first byte and line.
    """

    path: Path
    delimiter: str
    names: tuple[str, ...]
    count: int
    places: tuple[tuple[int, int], ...]

    def rows(self, start: int, size: int) -> Iterator[tuple[list[int], list[list[str]]]]:
        """Yield ``size`` records at a time from number ``start`` on: lines, and their cells.

        Fewer come at the end, and where they are long.

        Raises:
            ValueError: for a record with more or fewer cells than the header, or that is no UTF-8 text.
        """
        if start >= self.count:
            return
        offset, line = self.places[start // _STRIDE]
        with self.path.open("rb") as file:
            file.seek(offset)
            records = islice(_records(self.path, file, offset, line), start % _STRIDE, None)
            for batch in _batches(records, size):
                lines = [record.line for record in batch]
                cells = parse_records(self.path, batch, self.delimiter)
                width = len(self.names)
                for number, row in zip(lines, cells, strict=True):
                    if len(row) != width:
                        raise ValueError(
                            f"line {number} of {self.path} has {len(row)} cells, the header {width}: repair it"
                        )
                yield lines, cells


def _batches(records: Iterator[Record], size: int) -> Iterator[list[Record]]:
    """Yield ``size`` records at a time, or as many as have 16 MB."""
    held: list[Record] = []
    length = 0
    for record in records:
        held.append(record)
        length += len(record.content)
        if len(held) == size or length > _MOST_BYTES:
            yield held
            held, length = [], 0
    if held:
        yield held


def find_records(path: Path) -> CsvRecords:
    """Read the header, and find the records after it, in one pass."""
    with path.open("rb") as file:
        records = _records(path, file, 0, 1)
        first = next(records, None)
        if first is None:
            raise ValueError(f"{path} is empty: expected a header, and a line for every row")
        content = first.content.removeprefix(b"\xef\xbb\xbf")  # as Excel begins a file
        delimiter = max(_DELIMITERS, key=lambda one: content.count(one.encode()))
        (names,) = parse_records(path, [first._replace(content=content)], delimiter)
        count, places = 0, []
        for record in records:
            if count % _STRIDE == 0:
                places.append((record.offset, record.line))
            count += 1
    return CsvRecords(path, delimiter, tuple(name.strip() for name in names), count, tuple(places))


def parse_records(path: Path, records: Iterable[Record], delimiter: str) -> list[list[str]]:
    """Return the cells of every record."""
    line = 0

    def texts() -> Iterator[str]:
        nonlocal line
        for record in records:
            line = record.line
            yield record.content.decode()

    try:
        return list(csv.reader(texts(), delimiter=delimiter, strict=True))
    except UnicodeDecodeError as error:
        raise ValueError(f"line {line} of {path} is no UTF-8 text ({error}): write the file again as UTF-8") from error
    except csv.Error as error:
        raise ValueError(f"line {line} of {path} is no CSV ({error}): repair it") from error


def _records(path: Path, file: IO[bytes], offset: int, line: int) -> Iterator[Record]:
    """Yield records from an open file; blank lines are left out, and a quoted cell may hold line ends."""
    held: list[bytes] = []
    begin, first, quotes = offset, line, 0
    while content := file.readline(_MOST_BYTES):
        if len(content) == _MOST_BYTES:
            raise ValueError(
                f"line {line} of {path} has {_MOST_BYTES:,} bytes or more: no CSV has such lines, repair it"
            )
        held.append(content)
        quotes += content.count(b'"')
        offset, line = offset + len(content), line + 1
        if quotes % 2 == 0:
            whole = b"".join(held)
            if whole.strip():
                yield Record(begin, first, whole)
            held, begin, first = [], offset, line
        elif len(held) > _MOST_LINES:
            break
    if held:
        raise ValueError(f"line {first} of {path} has a quote that is not closed: repair it")
