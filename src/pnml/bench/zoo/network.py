"""What every network of the zoo offers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from typing import ClassVar

from torch import Tensor, nn

from pnml.bench.zoo.normalisation import CIFAR, Normalisation, Normalise

Tap = Callable[[Tensor], None]


def ignore(_activation: Tensor) -> None:
    """Stand in for a tap nobody listens to."""


class Network(nn.Module, ABC):
    """An image classifier in two steps: embeddings of the images, then one linear layer, the ``head``.

    Input is normalised: ``network(network.normalise(images))`` for uint8 images. Parameters carry the names under
    which the architecture's weights were published.

    Attributes:
        architecture: its name in the zoo, where :func:`pnml.bench.zoo.create` made it.
        normalise: the :class:`~pnml.bench.zoo.normalisation.Normalise` its weights were trained with.
    """

    head_name: ClassVar[str] = "fc"
    default_normalisation: ClassVar[Normalisation] = CIFAR
    architecture: str | None = None

    def __init__(self) -> None:
        super().__init__()
        self.normalise = Normalise(*self.default_normalisation)

    @abstractmethod
    def embed(self, x: Tensor, tap: Tap) -> Tensor:
        """Compute the embeddings and call ``tap`` with each tapped activation as soon as it exists."""

    @property
    def head(self) -> nn.Linear:
        """The last linear layer: embeddings (N, M) in, logits (N, C) out."""
        layer: nn.Linear = getattr(self, self.head_name)
        return layer

    def features(self, x: Tensor) -> Tensor:
        """Give the embeddings (N, M) of normalised images (N, 3, H, W)."""
        return self.embed(x, ignore)

    def forward(self, x: Tensor) -> Tensor:
        """Give the logits (N, C) of normalised images (N, 3, H, W)."""
        logits: Tensor = self.head(self.features(x))
        return logits

    def forward_with_taps(self, x: Tensor, on_tap: Callable[[int, Tensor], None]) -> Tensor:
        """Give the embeddings (N, M), and show the activations inside on the way.

        ``on_tap(i, activation)`` is called with i = 0, 1, 2, ... in the order of computation. The network holds no
        activation longer than it needs it itself, and overwrites none that it has shown.

        >>> import torch
        >>> from pnml.bench.zoo import create
        >>> shapes = {}
        >>> x = torch.zeros(1, 3, 32, 32)
        >>> features = create("resnet-20", 10).forward_with_taps(x, lambda i, a: shapes.update({i: tuple(a.shape)}))
        >>> len(shapes), shapes[0], shapes[53]
        (54, (1, 16, 32, 32), (1, 64, 8, 8))
        """
        number = count()
        return self.embed(x, lambda activation: on_tap(next(number), activation))

    def initialise(self) -> None:
        """Draw the weights for training from scratch: Kaiming normal convolutions, no bias in the head."""
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
        nn.init.zeros_(self.head.bias)
