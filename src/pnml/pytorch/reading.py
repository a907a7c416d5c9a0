"""How a guard reads its model, stored with its detector, so that the first batch after loading decides nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnml.pytorch.layers import Layer
from pnml.pytorch.token_mask import MaskSource

if TYPE_CHECKING:
    from collections.abc import Sequence


def to_reading(head: str, layers: Sequence[Layer], source: MaskSource | None) -> dict[str, Any]:
    """Return the name of a guard's head, its layers, and what says which tokens count, to be stored."""
    mask = None if source is None else source._asdict()
    return {"head": head, "layers": [layer._asdict() for layer in layers], "mask": mask}


def from_reading(
    reading: dict[str, Any] | None, names: Sequence[str]
) -> tuple[tuple[Layer, ...], MaskSource | None] | None:
    """Return the layers and the mask of a guard; None where nothing was stored, or not of layers of these names.

    >>> from_reading(to_reading("head", [Layer("conv", channel_axis=1)], MaskSource(token=0)), ["conv"])[1].token
    0
    """
    if reading is None:
        return None
    try:
        layers = tuple(Layer(**layer) for layer in reading["layers"])
        mask = None if reading["mask"] is None else MaskSource(**reading["mask"])
    except TypeError as error:
        raise ValueError(f"the entry 'reading' is of another version of pnml: {error}") from error
    return (layers, mask) if [str(layer) for layer in layers] == list(names) else None
