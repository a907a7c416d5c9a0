"""The base class of the networks of the zoo."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import ClassVar

from torch import Tensor, nn

from pnml_bench.zoo.normalisation import CIFAR, Normalisation, Normalise

Tap = Callable[[Tensor], None]


def _ignore(_activation: Tensor) -> None:
    """Discard a tapped activation."""


class Network(nn.Module, ABC):
    """An image classifier: embeddings of the images, then one linear layer, the ``head``.

    Input is normalised: ``network(network.normalise(images))`` for uint8 images. Parameters have the names of the
    published weights.

    Attributes:
        architecture: its name in the zoo; None unless created by :func:`pnml_bench.zoo.create`.
        normalise: the :class:`~pnml_bench.zoo.normalisation.Normalise` its weights were trained with.
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
