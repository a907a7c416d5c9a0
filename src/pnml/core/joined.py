"""The leverages of all layers by one product, for devices on which a call costs more than its arithmetic.

The layers are padded to the width of the widest, so that they are one array and their whitenings another: a GPU
multiplies these in one call.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pnml.backend.arrays import DeviceConstants, at_least, is_remote, is_traced, namespace
from pnml.backend.rows import SMALLEST_NORM

if TYPE_CHECKING:
    from pnml.backend.arrays import Array
    from pnml.core.model import Depth

_LARGEST = 40_000_000  # numbers of the padded whitenings and means: 320 MB in float64
_MOST_ROWS = 2048  # in a larger batch arithmetic costs more than calls


def is_few(x: Array) -> bool:
    """Return whether rows are on a GPU, and so few that calls cost more than arithmetic."""
    return is_remote(x) and not is_traced() and bool(x.shape[0] <= _MOST_ROWS)


@dataclass(frozen=True, eq=False)
class Joined:
    """The constants of a depth, its layers padded to one width W.

    With the background there are P = 2 + L blocks, in the order of ``depth.scatters``.
    """

    depth: Depth

    def serves(self, x: Array) -> bool:
        """Return whether one product for all layers is faster for these rows: few, on a GPU, and not too wide."""
        numbers = len(self.depth.scatters) * self._width * (self._width + len(self.depth.embedding.means))
        return is_few(x) and numbers <= _LARGEST

    @property
    def _width(self) -> int:
        return max(block.stop - block.start for block in self.depth.scatters)

    @cached_property
    def columns(self) -> DeviceConstants:
        """The columns of a row that are a block's, one block after the other; any where the block is padded, (P W,)."""
        places = np.arange(self._width)
        return DeviceConstants(
            np.concatenate([np.minimum(block.start + places, block.stop - 1) for block in self.depth.scatters])
        )

    @cached_property
    def constants(self) -> DeviceConstants:
        """Which columns are no padding, (P, W); the means, (C, P, W); the whitenings, (P, W, W). Padding is 0."""
        blocks, width = self.depth.scatters, self._width
        members = np.zeros((len(blocks), width))
        means = np.zeros((len(self.depth.embedding.means), len(blocks), width))
        whitenings = np.zeros((len(blocks), width, width))
        for number, block in enumerate(blocks):
            own = block.stop - block.start
            members[number, :own] = 1
            means[:, number, :own] = block.means  # the background has one for all classes
            whitenings[number, :own, : block.subspace.rank] = block.subspace.whitening
        return DeviceConstants(members, means, whitenings)


class UnitBlocks(NamedTuple):
    """The blocks of n rows: scaled to norm 1 and padded, (n, P, W), and the norms that they had, (n, P)."""

    x: Array
    norms: Array


def unit_blocks(x: Array, joined: Joined) -> UnitBlocks:
    """Return the blocks of rows (n, M of all layers) as they came; blocks of zeros stay so."""
    xp = namespace(x)
    (columns,) = joined.columns.to(x, xp.int64)
    members, *_ = joined.constants.to(x)
    y = xp.reshape(x[:, columns], (-1, *members.shape)) * members
    norms = xp.linalg.vector_norm(y, axis=-1)
    return UnitBlocks(y / at_least(norms, SMALLEST_NORM)[:, :, None], norms)


def joined_leverages(blocks: UnitBlocks, classes: Array, joined: Joined) -> Array:
    """Return the leverages of rows: of the embedding, of the background, of every earlier layer, shape (n, 2 + L).

    Those of layers that are not finite, or too large to be squared, are NaN.

    Args:
        blocks: of the rows.
        classes: the predicted classes, shape (n,).
        joined: the layers.
    """
    xp = namespace(blocks.x)
    _, means, whitenings = joined.constants.to(blocks.x)
    y = xp.permute_dims(blocks.x - means[classes], (1, 0, 2)) @ whitenings
    return xp.linalg.vector_norm(y, axis=-1).T ** 2 + (blocks.norms - blocks.norms)  # which is 0, or no number
