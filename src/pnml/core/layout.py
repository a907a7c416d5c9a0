"""How a row is cut into the blocks whose leverages are taken.

A row is an embedding, followed by the features of earlier layers, and last, where the model takes vectors, by its
input. Every block but the input is scaled to norm 1, and the logarithms of these norms are one more block, the lengths:
what scaling takes away is not lost. Of a wide block, evenly spaced columns are taken, so that no leverage costs more
than that of :data:`WIDEST` of them, whatever the network is.

The paper's own leverage knows the embedding alone, whole, scaled to norm 1 or as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import numpy as np

from pnml.backend.arrays import DeviceConstants, at_least, namespace, side_by_side
from pnml.backend.rows import norms_and_divisors

if TYPE_CHECKING:
    from pnml.backend.arrays import Array

WIDEST_EMBEDDING = 512
"""So many columns of an embedding have a leverage."""

WIDEST = 768
"""So many columns of the features of a layer, or of an input, have a leverage."""

LENGTHS = "lengths"
"""The name of the block of lengths."""

_SHORTEST = 1e-30  # no length is taken for less: a layer that puts out nothing has no logarithm


@dataclass(frozen=True)
class Layout:
    """The blocks of a row.

    Attributes:
        widths: of the embedding, and of the features after it.
        unit_norm: whether blocks are scaled to norm 1.
        whole: whether the embedding is the only block, with all of its columns: that of the paper.
        input_layer: whether the last of the features is the input of the model, which is not scaled.
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
        """The widths of all blocks: the embedding, the features, the lengths."""
        if self.whole:
            return self.widths
        embedding, *features = self.widths
        return (min(embedding, WIDEST_EMBEDDING), *(min(width, WIDEST) for width in features), self.n_lengths)

    @property
    def n_lengths(self) -> int:
        """How many blocks have a length: all but the input."""
        return len(self.widths) - self.input_layer

    def norms(self, rows: Array) -> tuple[Array, Array]:
        """Return the norms of the blocks of rows that have a length, (n, lengths), and what to divide these by."""
        pairs = [norms_and_divisors(rows[:, start:stop]) for start, stop in self.spans[: self.n_lengths]]
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
                block = some_columns(block, WIDEST if number else WIDEST_EMBEDDING)
            if self.unit_norm and number < self.n_lengths:
                block = block / divisors[:, number : number + 1]
            blocks.append(block)
        if not self.whole:
            blocks.append(namespace(rows).log(at_least(norms, _SHORTEST)))
        return blocks


def block_names(layers: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of all blocks, given those of the features.

    >>> block_names(("block1", "input"))
    ('embedding', 'block1', 'input', 'lengths')
    """
    return ("embedding", *layers, LENGTHS)


def some_columns(rows: Array, most: int) -> Array:
    """Return rows (n, M) with so many of their columns, evenly spaced, if they have more.

    >>> some_columns(np.arange(6)[None], 4)
    array([[0, 1, 3, 4]])
    """
    width = rows.shape[1]
    if width <= most:
        return rows
    if width % most == 0:
        return rows[:, :: width // most]
    xp = namespace(rows)
    (columns,) = _columns(width, most).to(rows, xp.int64)
    return xp.take(rows, columns, axis=1)


@cache
def _columns(width: int, most: int) -> DeviceConstants:
    return DeviceConstants(np.arange(most) * width // most)
