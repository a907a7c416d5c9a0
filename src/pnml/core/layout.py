"""How a row is cut into the blocks whose leverages are taken.

A row is an embedding, followed by the features of earlier layers, and last, where the model takes vectors, by its
input. Every block is scaled to norm 1, and the logarithms of the layers' norms are one more block, the lengths: what
scaling takes away from them is not lost. The input is a block once more as it comes, with the sizes of its columns. Of
a wide block, evenly spaced columns are taken, so that no leverage costs more than that of :data:`WIDEST` of them,
whatever the network is.

The paper's own leverage knows the embedding alone, whole, scaled to norm 1 or as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from pnml.backend.arrays import (
    DeviceConstants,
    at_least,
    is_remote,
    is_traced,
    namespace,
    side_by_side,
    working_dtype,
)
from pnml.backend.rows import divisors as divisors_of
from pnml.backend.rows import have_safe_squares, norms_and_divisors, plain_norms, squares

if TYPE_CHECKING:
    from pnml.backend.arrays import Array

WIDEST = 512
"""So many columns of an embedding, of the features of a layer or of an input have a leverage."""

LENGTHS = "lengths"
"""The name of the block of lengths."""

UNSCALED = "unscaled"
"""What the block of the input as it comes is called, after the name of the input."""

_SHORTEST = 1e-30  # no length is taken for less: a layer that puts out nothing has no logarithm


@dataclass(frozen=True)
class Layout:
    """The blocks of a row.

    Attributes:
        widths: of the embedding, and of the features after it.
        unit_norm: whether blocks are scaled to norm 1.
        whole: whether the embedding is the only block, with all of its columns: that of the paper.
        input_layer: whether the last of the features is the input of the model.
    """

    widths: tuple[int, ...]
    unit_norm: bool = True
    whole: bool = False
    input_layer: bool = False

    @cached_property
    def spans(self) -> tuple[tuple[int, int], ...]:
        """The first column of the embedding and of each of the features, and the column after the last."""
        ends = list(accumulate(self.widths))
        return tuple(zip([0, *ends[:-1]], ends, strict=True))

    @cached_property
    def block_widths(self) -> tuple[int, ...]:
        """The widths of all blocks: the embedding, the features, the input as it comes, the lengths."""
        if self.whole:
            return self.widths
        widths = [min(width, WIDEST) for width in self.widths]
        if self.input_layer:
            widths.append(widths[-1])
        if self.n_lengths:
            widths.append(self.n_lengths)
        return tuple(widths)

    @property
    def n_lengths(self) -> int:
        """How many lengths there are: one for each of the features."""
        return len(self.widths) - 1

    def norms(self, rows: Array) -> tuple[Array, Array]:
        """Return the norms of embedding and features of rows, (n, 1 + features), and what to divide these by."""
        if type(rows) is np.ndarray and rows.dtype.itemsize >= 4:  # in few calls, which matters for one row
            with np.errstate(all="ignore"):
                norms = np.sqrt(side_by_side([squares(rows[:, start:stop]) for start, stop in self.spans]))
            if have_safe_squares(norms):
                return norms, norms
        if is_remote(rows) or is_traced():  # in few calls, too, each of which a device has to be asked for
            dtype = working_dtype(namespace(rows), rows)
            norms = side_by_side([plain_norms(rows[:, start:stop], dtype) for start, stop in self.spans])
            return norms, divisors_of(norms)
        pairs = [norms_and_divisors(rows[:, start:stop]) for start, stop in self.spans]
        norms = side_by_side([of_block for of_block, _ in pairs])
        if all(of_block is divisor for of_block, divisor in pairs):
            return norms, norms
        return norms, side_by_side([divisor for _, divisor in pairs])

    def blocks(self, rows: Array, norms: Array, divisors: Array) -> list[Array]:
        """Return the blocks of rows (n, M of all), given what :meth:`norms` returned."""
        blocks = []
        for number, (start, stop) in enumerate(self.spans):
            block = rows[:, start:stop]
            if not self.whole:
                block = some_columns(block)
            if self.unit_norm:
                block = block / divisors[:, number : number + 1]
            blocks.append(block)
        if self.input_layer:
            start, stop = self.spans[-1]
            blocks.append(some_columns(rows[:, start:stop]))
        if self.n_lengths:
            blocks.append(namespace(rows).log(at_least(norms[:, 1:], _SHORTEST)))
        return blocks


def some_columns(rows: Array) -> Array:
    """Return rows (n, M) with :data:`WIDEST` of their columns, evenly spaced, if they have more.

    >>> some_columns(np.arange(768)[None])[:, :5]
    array([[0, 1, 3, 4, 6]])
    """
    width = rows.shape[1]
    if width <= WIDEST:
        return rows
    if width % WIDEST == 0:
        return rows[:, :: width // WIDEST]
    xp = namespace(rows)
    (columns,) = _columns(width).to(rows, xp.int64)
    return xp.take(rows, columns, axis=1)


@cache
def _columns(width: int) -> DeviceConstants:
    return DeviceConstants(np.arange(WIDEST) * width // WIDEST)
