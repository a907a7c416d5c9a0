"""How the rows of an input are dealt out: in pieces that a worker reads, sums or scores on its own."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from pnml.io.embeddings import EmbeddingFile

if TYPE_CHECKING:
    from pnml.io.chunk import Samples

_LEAST_CHUNKS = 16
_ROWS_PER_FEATURE = 64  # M² doubles leave a piece, so let 32 times as many bytes enter it: 64 M rows of M float32
_CHUNKS_OF_IMAGES = 64  # the first batch of a piece runs twice, once to check the head: a small share of so many


def pieces_of(samples: Samples) -> list[tuple[int, int]]:
    """Cut the rows of an input into pieces of about a gigabyte or less, (start, stop), that can be read on their own.

    The pieces depend on the input alone, not on the cluster: a job can go on elsewhere, and sums come out the same.
    """
    chunks = _CHUNKS_OF_IMAGES
    if isinstance(samples, EmbeddingFile):
        chunks = max(_LEAST_CHUNKS, -(-_ROWS_PER_FEATURE * samples.stored.width // samples.chunk_rows))
    return cut(samples.count, samples.chunk_rows, samples.starts, chunks)


def cut(count: int, chunk_rows: int, starts: tuple[int, ...], chunks: int) -> list[tuple[int, int]]:
    """Cut ``count`` rows into pieces of at least ``chunks`` chunks, the last of which may be less.

    Every piece begins where a chunk begins, so that each row is computed in the same chunk as without pieces, to the
    same bits; and at the first such row of a row group, so that little is read twice.

    Args:
        count: the number of rows.
        chunk_rows: how many rows are read at a time.
        starts: the rows from which reading can begin; any when empty.
        chunks: how many chunks a piece takes at least.

    >>> cut(100, 10, (), 4)
    [(0, 40), (40, 80), (80, 100)]
    >>> cut(100, 10, (0, 45, 95), 4)
    [(0, 50), (50, 100)]
    """
    aligned = sorted({-(-row // chunk_rows) * chunk_rows for row in starts})
    pieces, start = [], 0
    while start < count:
        stop = start + chunks * chunk_rows
        if aligned:
            later = bisect_left(aligned, stop)
            stop = aligned[later] if later < len(aligned) else count
        pieces.append((start, min(stop, count)))
        start = stop
    return pieces
