"""The leverages of all layers by one product, for devices on which a call costs more than its arithmetic.

The whitening factors of the layers are blocks of one matrix, which is mostly zeros. A GPU multiplies a small batch with
it in less time than it takes to ask for one product a layer.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from pnml.backend.arrays import DeviceConstants, is_remote, is_traced, namespace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml.backend.arrays import Array
    from pnml.core.model import Depth

_WIDEST = 6144  # features of all layers together: the matrix of more takes too much memory
_MOST_ROWS = 2048  # in a larger batch arithmetic costs more than calls


def is_few(x: Array) -> bool:
    """Return whether rows are on a GPU, and so few that calls cost more than arithmetic."""
    return is_remote(x) and not is_traced() and bool(x.shape[0] <= _MOST_ROWS)


@dataclass(frozen=True, eq=False)
class Joined:
    """The constants of a depth, its layers side by side."""

    depth: Depth

    def serves(self, x: Array) -> bool:
        """Return whether one product for all layers is faster for these rows: few, on a GPU, and not too wide."""
        return is_few(x) and bool(x.shape[1] <= _WIDEST)

    @cached_property
    def constants(self) -> DeviceConstants:
        """For arrays of any library: see the names in :func:`joined_leverages`."""
        layers = (self.depth.embedding, *self.depth.layers)
        background = self.depth.background
        members = np.zeros((layers[-1].stop, len(layers)))
        for number, layer in enumerate(layers):
            members[layer.start : layer.stop, number] = 1
        blocks = [layers[0], background, *layers[1:]]
        ends = np.cumsum([0, *(block.subspace.rank for block in blocks)])
        whitening, totals = np.zeros((layers[-1].stop, ends[-1])), np.zeros((ends[-1], len(blocks)))
        for number, (block, start, stop) in enumerate(zip(blocks, ends[:-1], ends[1:], strict=True)):
            whitening[block.start : block.stop, start:stop] = block.subspace.whitening
            totals[start:stop, number] = 1
        means = np.concatenate([layer.means for layer in layers], axis=1)
        offsets = np.zeros((len(means), ends[-1]))  # of the background, whose mean is that of all classes
        offsets[:, ends[1] : ends[2]] = (self.depth.embedding.means - background.means) @ background.subspace.whitening
        return DeviceConstants(members, means, whitening, offsets, totals)


def joined_leverages(x: Array, classes: Array, constants: Sequence[Array]) -> Array:
    """Return the leverages of rows: of the embedding, of the background, of every earlier layer, shape (n, 2 + L).

    Args:
        x: rows as they came, shape (n, M of all layers).
        classes: the predicted classes, shape (n,).
        constants: of :class:`Joined`, in the library, on the device and in the dtype of ``x``.
    """
    members, means, whitening, offsets, totals = constants
    xp = namespace(x)
    squared_norms = (x * x) @ members
    scale = 1 / xp.sqrt(xp.where(squared_norms > 0, squared_norms, xp.ones_like(squared_norms)))
    y = (x * (scale @ members.T) - means[classes]) @ whitening + offsets[classes]
    return (y * y) @ totals
