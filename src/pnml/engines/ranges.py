"""Split the rows of an input into ranges that are read, and summed or scored, independently."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from pnml.engines.budget import table_rows

if TYPE_CHECKING:
    from pnml.io.source import Samples

_CHUNKS = 16
_CHUNKS_OF_IMAGES = 64  # the first batch of a range runs twice, once to check the head: a small share of so many
# M² doubles leave a worker for every layer of M features, so 32 times as many bytes enter it: 64 M rows of M float32.
_ROWS_PER_FEATURE = 64

# As many as keep their share of the memory: ranges are listed, and so are their files. An input that needs more has
# tens of terabytes, or a header that says so.
_MOST_RANGES = 250_000

Range = tuple[int, int]
"""The first row, and the row after the last."""


def local_ranges(samples: Samples) -> list[Range]:
    """Return the ranges between the points from which a killed local run can be resumed.

    They are longer where there would be very many, as long as their scores keep to the budget; raise ``ValueError``
    where that does not help.
    """
    count = samples.count
    chunk_rows = samples.chunk_rows
    wanted = max(_CHUNKS, -(-count // (chunk_rows * _MOST_RANGES)))
    chunks = max(1, min(wanted, table_rows(samples.reader) // chunk_rows))
    most = _MOST_RANGES * chunks * chunk_rows
    if count > most:
        raise ValueError(
            f"{samples.path} has {count:,} rows, where at most {most:,} are scored into one table: if it has that "
            "many, split it and score each part; if not, its header is damaged, and it has to be written again"
        )
    return split_rows(count, chunk_rows, (), chunks)


def worker_ranges(samples: Samples) -> list[Range]:
    """Return ranges of about a gigabyte or less, which begin at row groups, for the workers of a cluster.

    They depend on the input alone, not on the cluster: a job can be resumed elsewhere, and sums are the same.
    """
    chunks = _CHUNKS_OF_IMAGES
    if samples.reader.width:
        widths = samples.reader.widths
        rows = _ROWS_PER_FEATURE * sum(width**2 for width in widths) // sum(widths)
        chunks = max(_CHUNKS, -(-rows // samples.chunk_rows))
    return split_rows(samples.count, samples.chunk_rows, samples.reader.starts, chunks)


def split_rows(count: int, chunk_rows: int, starts: tuple[int, ...], chunks: int) -> list[Range]:
    """Split ``count`` rows into ranges of at least ``chunks`` chunks; the last one may be smaller.

    Every range begins where a chunk begins, so that each row is computed in the same chunk, to the same bits, however
    the rows are split; and at the first such row of a row group, so that little is read twice.

    ``starts`` are the rows from which reading can begin; any when empty.

    >>> split_rows(100, 10, (), 4)
    [(0, 40), (40, 80), (80, 100)]
    >>> split_rows(100, 10, (0, 45, 95), 4)
    [(0, 50), (50, 100)]
    """
    aligned = sorted({-(-row // chunk_rows) * chunk_rows for row in starts})
    ranges = []
    start = 0
    while start < count:
        stop = start + chunks * chunk_rows
        if aligned:
            later = bisect_left(aligned, stop)
            stop = aligned[later] if later < len(aligned) else count
        ranges.append((start, min(stop, count)))
        start = stop
    return ranges
