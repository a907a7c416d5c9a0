"""How a guard reads its model, stored with its detector, so that the first batch after loading decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnml.pytorch.layers import Layer
from pnml.pytorch.token_mask import MaskSource

if TYPE_CHECKING:
    from collections.abc import Sequence


def to_reading(layers: Sequence[Layer], source: MaskSource | None) -> dict[str, Any]:
    """Return the layers of a guard, and what says which tokens count, as lists to be stored."""
    return {"layers": [list(layer) for layer in layers], "mask": None if source is None else list(source)}


def from_reading(
    reading: dict[str, Any] | None, names: Sequence[str]
) -> tuple[tuple[Layer, ...], MaskSource | None] | None:
    """Return what :func:`to_reading` was given; None where nothing was stored, or not of layers of these names.

    >>> from_reading(to_reading([Layer("conv", channel_axis=1)], MaskSource(token=0)), ["conv"])[1].token
    0
    """
    if reading is None:
        return None
    layers = tuple(Layer(*layer) for layer in reading["layers"])
    if [str(layer) for layer in layers] != list(names):
        return None
    return layers, None if reading["mask"] is None else MaskSource(*reading["mask"])
