"""A layer as weight · x + bias: read from it where it is linear, probed where it only behaves so."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from pnml.pytorch.head import attempt

_CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_ROWS = 64  # of a batch that a layer is checked on
_PROBES = 1024  # unit vectors that enter a layer at a time


Source = Literal["own", "probed", "cosine"]
"""An affine map that a layer has by its weight and bias, that it behaves as, or as on rows of norm 1."""


class Affine(NamedTuple):
    """A map from embeddings (n, M) to logits (n, C): weight (C, M) and bias (C,)."""

    weight: Tensor
    bias: Tensor


def as_places(layer: nn.Module, entered: Tensor, output: Tensor) -> tuple[Tensor, Tensor] | None:
    """Return what entered a layer and what it put out, (n, places, M) and (n, places, C); None where it mixes places.

    Places are tokens or pixels. A convolution with a kernel of one pixel is linear in each, and so is one whose kernel
    is as large as the picture, in the flattened picture.

    >>> x, z = as_places(nn.Conv2d(3, 5, 1), torch.zeros(2, 3, 4, 4), torch.zeros(2, 5, 4, 4))
    >>> x.shape, z.shape
    (torch.Size([2, 16, 3]), torch.Size([2, 16, 5]))
    """
    if entered.ndim < 2 or output.ndim != entered.ndim:
        return None
    if isinstance(layer, _CONVOLUTIONS):
        if entered.ndim == len(layer.kernel_size) + 2 and layer.groups == 1 and _is_pointwise(layer):
            return entered.flatten(2).transpose(1, 2), output.flatten(2).transpose(1, 2)
        whole = layer.groups == 1 and _is_whole(layer, entered)
        return (entered.flatten(1)[:, None], output.flatten(1)[:, None]) if whole else None
    if entered.shape[:-1] != output.shape[:-1]:
        return None
    shape = (entered.shape[0], math.prod(entered.shape[1:-1]))  # a -1 would not do for no samples
    return entered.reshape(*shape, entered.shape[-1]), output.reshape(*shape, output.shape[-1])


def _is_pointwise(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> bool:
    padded = not isinstance(layer.padding, str) and any(layer.padding)
    return not padded and {*layer.kernel_size, *layer.stride} == {1}


def _is_whole(layer: nn.Conv1d | nn.Conv2d | nn.Conv3d, entered: Tensor) -> bool:
    padded = any(layer.padding) and layer.padding != "valid"
    return not padded and layer.kernel_size == tuple(entered.shape[2:]) and set(layer.dilation) == {1}


def own_affine(layer: nn.Module) -> Affine | None:
    """Return the weight (C, M) and the bias (C,) of a linear layer or a convolution, zeros if it has none."""
    if not isinstance(layer, (nn.Linear, *_CONVOLUTIONS)):
        return None
    weight, bias = layer.weight.detach().flatten(1), getattr(layer, "bias", None)
    return Affine(weight, weight.new_zeros(len(weight)) if bias is None else bias.detach())


@torch.no_grad()
def affine_of(layer: nn.Module, x: Tensor, z: Tensor) -> tuple[Affine, Source] | None:
    """Return the affine map of a layer, and where it is from; None if the layer is not affine on these rows.

    A cosine classifier is affine in rows of norm 1. A layer that is not an ``nn.Linear``, or computes something else
    than its weight and bias say, is probed with unit vectors.

    Args:
        layer: is called with rows in eval mode.
        x: rows that entered it, (n, M).
        z: what it put out, (n, C).
    """
    kept = (x.isfinite().all(dim=1) & z.isfinite().all(dim=1)).nonzero()[:_ROWS, 0]
    if not len(kept):  # nothing to check with: what the layer says of itself
        own = own_affine(layer)
        return None if own is None else (own, "own")
    x, z = x[kept], z[kept]
    exact = z.dtype in {torch.float32, torch.float64} and not callable(getattr(layer, "weight", None))
    own = own_affine(layer)
    tolerance, size = (0.001, z.abs().mean()) if exact else (0.02, z.abs().max())
    if own is not None and _agrees(own, x, z, max(tolerance, 0.01), size):
        return own, "own"
    probed = None if isinstance(layer, _CONVOLUTIONS) else _probe(layer, x)
    if probed is None or probed.weight.shape != (z.shape[1], x.shape[1]):
        return None
    if _agrees(probed, x, z, tolerance, size):
        return probed, "probed"
    return (probed, "cosine") if _agrees(probed, nn.functional.normalize(x), z, tolerance, size) else None


def _agrees(affine: Affine, x: Tensor, z: Tensor, tolerance: float, size: Tensor) -> bool:
    weight, bias = (part.to(x.device, torch.float32) for part in affine)
    with torch.autocast(x.device.type, enabled=False):
        plain = nn.functional.linear(x.float(), weight, bias)
    return bool(torch.allclose(plain, z.float(), rtol=tolerance, atol=tolerance * float(size)))


def _probe(layer: nn.Module, like: Tensor) -> Affine | None:
    """Return the affine map that agrees with a layer on all unit vectors and their opposites."""
    parts = torch.split(torch.eye(like.shape[1], dtype=like.dtype, device=like.device), _PROBES)
    outputs = attempt(lambda: [(layer(part).cpu().double(), layer(-part).cpu().double()) for part in parts])
    if outputs is None or outputs[0][0].ndim != 2:
        return None
    above, below = map(torch.cat, zip(*outputs, strict=True))
    return Affine((above - below).T / 2, (above + below).mean(dim=0) / 2)
