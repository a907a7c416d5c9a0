"""A small classifier and its inputs for the tests of the adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from oracles import about_class_means, by_pseudo_inverse

if TYPE_CHECKING:
    import numpy as np

    from pnml import Detector

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
        """Return the features, and the output of the layer before."""
        with torch.no_grad():
            return [self.features(x), self.body(x)]

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


def naive_regret(detector: Detector, train: list[Tensor], rows: list[Tensor]) -> np.ndarray[Any, Any]:
    """Return the regret computed in float64 from the training rows, layer by layer, with the detector's ridges."""
    seen, fresh = ([layer.detach().double().numpy() for layer in layers] for layers in (train, rows))
    if detector.embedding_scale != "auto":
        args = detector.weight, detector.bias, seen[0], fresh[0], detector.embedding_scale
        return by_pseudo_inverse(*args)["regret"]
    geometry = detector.geometry
    assert geometry is not None
    embedding, *layers = geometry.scatters
    ridges = [embedding.ridge, geometry.background.ridge, *(layer.ridge for layer in layers)]
    return about_class_means(detector.weight, detector.bias, seen, fresh, ridges)["regret"]
