"""A module that a model calls in vain before it calls it otherwise: only the call that returned is a layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import pnml
from pnml.pytorch.calls import call_tree

from .networks import CLASSES, seeded


class TakesLengths(nn.Module):
    """A layer that takes one argument more than the others."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x: Tensor, scale: float) -> Tensor:
        found: Tensor = self.inner(x).tanh() * scale
        return found


class Trying(nn.Module):
    """Gives each of its layers two arguments, and one if that fails."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([nn.Linear(5, 8), TakesLengths(), nn.Linear(8, 8), nn.Linear(8, 8)])
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.tried(layer, x)
        logits: Tensor = self.head(x.mean(dim=1))
        return logits

    @staticmethod
    def tried(layer: nn.Module, x: Tensor) -> Any:
        try:
            return layer(x, 2.0)
        except TypeError:
            return layer(x)


def batch(count: int, seed: int) -> Tensor:
    return torch.randn(count, 7, 5, generator=seeded(seed))


def test_layers_are_the_calls_that_returned() -> None:
    guard = pnml.guard(Trying()).fit([batch(40, seed) for seed in range(2)], progress=False)
    assert guard.layers == ("layers.0", "layers.1", "layers.2", "layers.3")
    assert guard(batch(5, 9)).leverage_by_layer.shape == (5, 5)


def test_a_failed_call_leaves_nothing_in_the_tree() -> None:
    root, entered = call_tree(Trying(), (batch(3, 0),), {}, ["head"])
    assert [(node.name, node.call, node.end) for node in root.children] == [
        (f"layers.{number}", 0, number + 1) for number in range(4)
    ]
    assert len(entered) == 1
