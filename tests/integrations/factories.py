"""A small classifier and its inputs for the tests of the adapters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from oracles import by_pseudo_inverse

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

    def forward(self, x: Tensor, *, return_feature: bool = False) -> Tensor | tuple[Tensor, Tensor]:
        features = self.features(x)
        logits: Tensor = self.fc(features)
        return (logits, features) if return_feature else logits

    def get_fc(self) -> tuple[np.ndarray, np.ndarray]:
        return self.fc.weight.detach().cpu().numpy(), self.fc.bias.detach().cpu().numpy()


def classifier() -> Classifier:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return Classifier().eval()


def inputs(n: int, seed: int, scale: float = 1.0) -> Tensor:
    return scale * torch.randn(n, 6, generator=torch.Generator().manual_seed(seed))


def naive_regret(rows: Tensor, train: Tensor, head: nn.Linear, embedding_scale: str = "auto") -> np.ndarray:
    """Return the regret computed in float64 from the training rows."""
    weight, bias, train_rows, test_rows = (t.detach().double().numpy() for t in (head.weight, head.bias, train, rows))
    return by_pseudo_inverse(weight, bias, train_rows, test_rows, embedding_scale)["regret"]
