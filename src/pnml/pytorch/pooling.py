"""The output of a layer as one row per sample: means and standard deviations over its pixels or tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pnml.backend.arrays import is_traced

if TYPE_CHECKING:
    from pnml.pytorch.layers import Layer

_BLOCK = 2**19  # numbers of an output that are pooled at a time on the CPU: they fit into its cache
Parts = tuple[Tensor, ...]
"""Features of a layer, (n, features) side by side."""


def pool(output: Tensor, layer: Layer, share: Tensor | None = None) -> Parts:
    """Return the mean and the standard deviation of every channel over the pixels or tokens, (n, 2 channels).

    An output without pixels or tokens is returned as it is, (n, channels). Half precision is summed in float32. On a
    GPU, which waits for every call, means and deviations are two parts, to be joined along with those of other layers.

    Args:
        output: of the layer.
        layer: which axis is which.
        share: of each token in the mean of outputs with T tokens, (n, T), as :func:`token_shares` gives it.

    >>> from pnml.pytorch.layers import Layer
    >>> join(pool(torch.tensor([[[1.0, 2.0], [3.0, 2.0]]]), Layer("tokens", channel_axis=2)))
    tensor([[2., 2., 1., 0.]])
    """
    axes = layer.batch_axis, layer.channel_axis
    x = output if axes == (0, 1) else output.movedim(axes, (0, 1))
    if x.ndim == 2:
        return (x.to(_wide_dtype(x), copy=True),)  # the next module may overwrite its input
    if not layer.has_places:  # nor where the layer was found: there may be some now, in a larger picture
        return (x.to(_wide_dtype(x), copy=True).flatten(2).mean(dim=2),)
    if share is None and not x.is_cpu and not is_traced():
        return _moments_at_once(x)
    x = x.flatten(2)
    is_shared = share is not None and output.ndim == 3 and share.shape == (x.shape[0], x.shape[2])
    share = share.to(x.device)[:, None] if share is not None and is_shared else None
    if is_traced() or x.device.type != "cpu":
        return _moments(x, share)
    rows = max(1, _BLOCK // (x.shape[1] * x.shape[2]))
    blocks = torch.split(x, rows)
    shares = [None] * len(blocks) if share is None else torch.split(share, rows)
    return (torch.cat([join(_moments(*block)) for block in zip(blocks, shares, strict=True)]),)


def token_shares(mask: Tensor) -> Tensor:
    """Return the share of each token in the mean of those of its sample that count, (n, T), from 0 to 1.

    >>> token_shares(torch.tensor([[1, 1, 0]]))
    tensor([[0.5000, 0.5000, 0.0000]])
    """
    return mask / mask.sum(dim=1, keepdim=True).clamp(min=1)


def join(parts: Parts) -> Tensor:
    """Return the features of a layer as one tensor (n, features)."""
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _moments(x: Tensor, share: Tensor | None) -> Parts:
    """Return means and standard deviations of rows (n, C, places), weighted by the shares (n, 1, places) of places."""
    x = x.to(_wide_dtype(x))
    if share is not None:
        share = share.to(x.dtype)
        mean = (x * share).sum(dim=2, keepdim=True)
        variance = (x - mean).square_().mul_(share).sum(dim=2)
    elif x.device.type == "cpu" and not is_traced():  # ten times as fast there as var_mean
        mean = x.mean(dim=2, keepdim=True)
        variance = (x - mean).square_().mean(dim=2)
    else:
        return _moments_at_once(x)
    return mean.flatten(1), variance.flatten(1).sqrt()


def _moments_at_once(x: Tensor) -> Parts:
    """Return means and standard deviations of rows (n, C, ...) by one call."""
    wide = x if x.dtype is torch.float32 else x.to(_wide_dtype(x))  # a call that does nothing takes time, too
    deviation, mean = torch.std_mean(wide, dim=tuple(range(2, x.ndim)), correction=0)
    return mean, deviation


def _wide_dtype(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32
