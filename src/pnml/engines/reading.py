"""Read ranges of an input a chunk at a time, under a progress bar; and check that every row was read once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml.backend.progress import track

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pnml.engines.ranges import Range
    from pnml.io.source import Chunk, Samples


def read_chunks(samples: Samples, ranges: Sequence[Range], what: str, *, progress: bool) -> Iterator[Chunk]:
    """Yield the chunks of ranges, under a progress bar."""
    total = sum(-(-(stop - start) // samples.chunk_rows) for start, stop in ranges)
    return track(_chunks(samples, ranges), what, shown=progress and total > 0, total=total)


def _chunks(samples: Samples, ranges: Sequence[Range]) -> Iterator[Chunk]:
    """Yield the chunks of ranges; where one range ends at the start of the next, reading goes on."""
    chunks: Iterator[Chunk] = iter(())
    position = -1
    for start, stop in ranges:
        if start != position:
            chunks = samples.chunks(start)
            position = start
        while position < stop:
            chunk = next(chunks, None)
            position = stop + 1 if chunk is None else chunk.stop
            if chunk is None or position > stop:
                raise ValueError(f"rows {start} to {stop} of {samples.path} changed while they were read: run again")
            yield chunk


def check_coverage(samples: Samples, done: int, skipped: Sequence[str]) -> None:
    """Raise ``ValueError`` unless all rows are done or were skipped, some are done, and no file changed meanwhile."""
    if len(skipped) == samples.count:
        raise ValueError(f"none of the {samples.count:,} images of {samples.path} decodes")
    done += len(skipped)
    if samples.reader.fingerprint() != samples.reader.opened:
        raise ValueError(f"{samples.path} changed while it was read: run the command again")
    if done != samples.count:
        raise ValueError(f"{done:,} of {samples.count:,} rows of {samples.path} were read: run the command again")
