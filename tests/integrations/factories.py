"""A small classifier and its inputs for the tests of the adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from pnml import Detector

if TYPE_CHECKING:
    import numpy as np

CLASSES, FEATURES = 4, 20


class Classifier(nn.Module):
    """A classifier with separate features and last layer, as both packages require."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(6, FEATURES)
        self.fc = nn.Linear(FEATURES, CLASSES)

    def features(self, x: Tensor) -> Tensor:
        out: Tensor = torch.tanh(self.body(x))
        return out

    def layers(self, x: Tensor) -> list[Tensor]:
        """Return the features, the output of the layer before, and the input."""
        with torch.no_grad():
            return [self.features(x), self.body(x), x]

    def forward(self, x: Tensor, *, return_feature: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        features = self.features(x)
        logits: Tensor = self.fc(features)
        return (logits, features) if return_feature else logits

    def get_fc(self) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        return self.fc.weight.detach().cpu().numpy(), self.fc.bias.detach().cpu().numpy()


def classifier() -> Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Classifier().eval()


def inputs(n: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))


def regret_anew(net: Classifier, train: Tensor, x: Tensor, *, alone: bool = False, **options: Any) -> Tensor:
    """Return the regret of inputs x by a detector that is given all layers of a network, or its embeddings alone."""
    known, asked = (net.layers(rows)[: 1 if alone else None] for rows in (train, x))
    detector = Detector(net.fc.weight, net.fc.bias, input_layer=not alone, **options)
    regret: Tensor = detector.fit(known[0], features=known[1:])(asked[0], features=asked[1:]).regret
    return regret
