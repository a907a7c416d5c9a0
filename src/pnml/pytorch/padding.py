"""Which layers see padding: their rows change with tokens that the model itself leaves out."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml.pytorch.calls import call_tree
from pnml.pytorch.pooling import MASKS, join, token_mask
from pnml.pytorch.recording import record_layers

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml.pytorch.layers import Layer

    Arguments = tuple[tuple[Any, ...], dict[str, Any]]

_ROUNDING = 1e-4  # of the norm, in float32


@torch.no_grad()
def which_see_padding(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], heads: Sequence[str], layers: Sequence[Layer]
) -> list[bool]:
    """Return of every layer whether its rows change where samples end in padding, and the embeddings do not.

    Some layers join or convolve tokens along with padding, and a mask of the model's own tokens says nothing of that.
    Where nothing is known, as without a mask, the answer is no.

    Args:
        model: is run twice: with the later half of the tokens turned into padding, and without it.
        args: its positional arguments.
        kwargs: its keyword arguments.
        heads: the names of its last layers.
        layers: of the model.
    """
    mask = token_mask(model, args, kwargs)
    kept = 0 if mask is None or not layers else _kept(mask)
    if mask is None or not kept:
        return [False] * len(layers)
    try:
        short, entered = _rows(model, *_ending_at(kept, model, args, kwargs, mask, is_cut=True), heads, layers)
        long, entered_long = _rows(model, *_ending_at(kept, model, args, kwargs, mask, is_cut=False), heads, layers)
    except torch.OutOfMemoryError:
        raise
    except Exception:  # noqa: BLE001 - whatever a model raises that wants the tokens that are gone
        return [False] * len(layers)
    slack = max(_ROUNDING, 2 * torch.finfo(entered[0].dtype).eps)
    counting = mask[:, :kept]
    for x, y in zip(entered, entered_long, strict=True):
        if x.shape[:2] == counting.shape and y.ndim > 2:
            x, y = x[counting], y[:, :kept][counting]  # noqa: PLW2901
        if not _distance(x, y) <= slack:
            return [False] * len(layers)
    return [x is None or y is None or not _distance(x, y) <= 3 * slack for x, y in zip(short, long, strict=True)]


def _kept(mask: Tensor) -> int:
    """Return how many tokens to keep so that every sample has some that count; 0 if there is nothing to leave out."""
    first = int((mask.cumsum(dim=1) == 0).sum(dim=1).max())
    kept = max(first + 1, (mask.shape[1] + 1) // 2)
    return kept if kept < mask.shape[1] else 0


def _ending_at(
    kept: int, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], mask: Tensor, *, is_cut: bool
) -> Arguments:
    """Return the arguments of a model where tokens after those that are kept are cut, or else are padding."""
    token = getattr(getattr(model, "config", None), "pad_token_id", None)

    def end(name: str, x: Any) -> Any:
        if not isinstance(x, Tensor) or x.shape[:2] != mask.shape:
            return x
        if is_cut:
            return x[:, :kept]
        x = x.clone()
        x[:, kept:] = int(MASKS[name]) if name in MASKS else token if name == "input_ids" and token is not None else 0
        return x

    names = [*signature(model.forward).parameters, *[""] * len(args)]
    by_position = tuple(end(name, x) for name, x in zip(names, args, strict=False))
    return by_position, {name: end(name, x) for name, x in kwargs.items()}


def _rows(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any], heads: Sequence[str], layers: Sequence[Layer]
) -> tuple[list[Tensor | None], list[Tensor]]:
    """Return the rows of layers in a forward pass, and what entered the heads."""
    with record_layers(model, layers, kwargs, args) as pooled:
        _, entered = call_tree(model, args, kwargs, heads)
    return [None if parts is None else join(parts) for parts in pooled], entered


def _distance(x: Tensor, y: Tensor) -> float:
    """Return how far tensors are from one another, relative to their norm; infinity for other shapes."""
    if x.shape != y.shape:
        return torch.inf
    x, y = x.float(), y.float()
    return float((x - y).norm() / x.norm().clamp(min=torch.finfo(torch.float32).tiny))
