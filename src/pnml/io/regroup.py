"""Join small batches of rows to pieces of a wanted size, and to smaller ones where ids are long."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.io.texts import text_lengths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

_LONGEST = 1 << 22  # characters of all ids of a piece together, unless a single one has more

Batch = tuple["NDArray[Any]", "NDArray[Any]"]
"""Ids (n,) and rows (n, M)."""


def regroup(batches: Iterable[Batch], size: int) -> Iterator[Batch]:
    """Yield pieces of ``size`` rows; fewer at the end, and before the ids of a piece exceed four million characters.

    Where a piece ends does not depend on the batches. Pieces begin anew at every multiple of ``size``.

    >>> batches = [(np.arange(n, n + 3), np.ones((3, 2))) for n in (0, 3, 6)]
    >>> [ids.tolist() for ids, _ in regroup(batches, 4)]
    [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    """
    held: list[Batch] = []
    room, length = size, 0
    for ids, rows in batches:
        lengths = text_lengths(ids)
        begin = 0
        while begin < len(ids):
            sums = length + np.cumsum(lengths[begin : begin + room])
            fitting = int(np.searchsorted(sums, _LONGEST, side="right"))
            end = begin + (fitting if fitting or held else 1)
            if end > begin:
                held.append((ids[begin:end], rows[begin:end]))
                room, length = room - (end - begin), int(sums[end - begin - 1])
            begin = end
            if room == 0 or begin < len(ids):
                yield _joined(held)
                held, length, room = [], 0, room or size
    if held:
        yield _joined(held)


def _joined(batches: Sequence[Batch]) -> Batch:
    if len(batches) == 1:
        return batches[0]
    ids, rows = zip(*batches, strict=True)
    return np.concatenate(ids), np.concatenate(rows)
