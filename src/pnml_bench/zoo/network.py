"""The base class of the networks of the zoo, and how they normalise images."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar, NamedTuple

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


Tap = Callable[[Tensor], None]


def _ignore(_activation: Tensor) -> None:
    """Discard a tapped activation."""


class Network(nn.Module, ABC):
    """An image classifier: embeddings of the images, then one linear layer, the ``head``.

    Input is normalised: ``network(network.normalise(images))`` for uint8 images. Parameters have the names of the
    published weights.

    Attributes:
        architecture: its name in the zoo; None unless created by :func:`pnml_bench.zoo.create`.
        normalise: the :class:`Normalise` its weights were trained with.
    """

    head_name: ClassVar[str] = "fc"
    default_normalisation: ClassVar[Normalisation] = CIFAR
    architecture: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self.normalise = Normalise(*self.default_normalisation)

    @abstractmethod
    def embed(self, x: Tensor, tap: Tap) -> Tensor:
        """Compute the embeddings (N, M) and call ``tap`` with each tapped activation as soon as it is computed.

        The network keeps no reference to an activation that it no longer needs, and does not overwrite tapped ones.

        >>> import torch
        >>> from pnml_bench.zoo import create
        >>> taps = []
        >>> features = create("resnet-20", 10).embed(torch.zeros(1, 3, 32, 32), taps.append)
        >>> len(taps), tuple(taps[0].shape), tuple(taps[53].shape)
        (54, (1, 16, 32, 32), (1, 64, 8, 8))
        """

    @property
    def head(self) -> nn.Linear:
        """The last linear layer, from embeddings (N, M) to logits (N, C)."""
        layer: nn.Linear = getattr(self, self.head_name)
        return layer

    def features(self, x: Tensor) -> Tensor:
        """Compute the embeddings (N, M) of normalised images (N, 3, H, W)."""
        return self.embed(x, _ignore)

    def forward(self, x: Tensor) -> Tensor:
        """Compute the logits (N, C) of normalised images (N, 3, H, W)."""
        logits: Tensor = self.head(self.features(x))
        return logits

    def initialise(self) -> None:
        """Initialise the weights for training: Kaiming normal convolutions, zero bias in the head."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.head.bias)
