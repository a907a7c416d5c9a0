"""Embeddings that look like a network's, made on the spot: non-negative, correlated, of very unequal strength."""

from __future__ import annotations

import torch
from torch import Tensor


def head(width: int, classes: int, *, device: str = "cpu") -> tuple[Tensor, Tensor]:
    """Return the weight (classes, width) and bias (classes,) of a last layer."""
    random = torch.Generator(device).manual_seed(1)
    weight = torch.randn(classes, width, generator=random, device=device)
    return weight * (8 / width**0.5), 0.1 * torch.randn(classes, generator=random, device=device)


def embeddings(count: int, width: int, *, seed: int, device: str = "cpu", far: bool = False) -> Tensor:
    """Return (count, width) in float32: rectified mixtures of hidden factors; with ``far``, of other factors.

    Factors weaken a thousandfold from the first to the last, features a hundredfold.
    """
    random = torch.Generator(device).manual_seed(0)
    mixing = torch.randn(width, width, generator=random, device=device) / width**0.5
    strength = torch.logspace(0, -3, width, device=device)
    scale = torch.logspace(0, -2, width, device=device)[torch.randperm(width, generator=random, device=device)]
    random.manual_seed(2 + seed)
    if far:
        strength = strength.flip(0) + 0.1
    out = torch.empty(count, width, device=device)
    for start in range(0, count, 1 << 16):
        rows = out[start : start + (1 << 16)]
        hidden = torch.randn(len(rows), width, generator=random, device=device) * (strength * width**0.5)
        rows.copy_(torch.relu(hidden @ mixing + 0.5).mul_(scale))
    return out
