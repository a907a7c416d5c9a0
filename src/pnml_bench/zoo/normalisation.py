"""Normalise uint8 images for a network."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

Channels = tuple[float, float, float]


class Normalisation(NamedTuple):
    """Mean and standard deviation of each channel, for images in [0, 1]."""

    mean: Channels
    std: Channels


CIFAR = Normalisation(
    mean=(125.3 / 255, 123.0 / 255, 113.9 / 255),
    std=(63.0 / 255, 62.1 / 255, 66.7 / 255),
)
IMAGENET = Normalisation(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


class Normalise(nn.Module):
    """Compute ``(images / 255 - mean) / std`` of uint8 images (N, 3, H, W), keeping their memory layout.

    ``mean`` and ``std`` are buffers of shape (3, 1, 1) that move with the network but are not in its state dict.

    >>> images = torch.full((2, 3, 32, 32), 255, dtype=torch.uint8)
    >>> Normalise((0.5, 0.5, 0.5), (0.5, 0.25, 0.125))(images)[0, :, 0, 0]
    tensor([1., 2., 4.])
    """

    mean: Tensor
    std: Tensor

    def __init__(self, mean: Channels, std: Channels) -> None:
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(3, 1, 1), persistent=False)
        self.register_buffer("std", torch.tensor(std).view(3, 1, 1), persistent=False)

    def forward(self, images: Tensor) -> Tensor:
        """Normalise ``images``, a uint8 tensor of shape (N, 3, H, W)."""
        if images.dtype != torch.uint8 or images.ndim != 4 or images.shape[1] != 3:
            raise ValueError(
                f"expected images to be uint8 of shape (N, 3, H, W), got {images.dtype} of shape {tuple(images.shape)}"
            )
        return (images.to(self.mean.dtype) / 255 - self.mean) / self.std
