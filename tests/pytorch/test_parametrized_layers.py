"""Layers whose weights are made when they are called, as with weight normalisation, are watched like any others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from torch import nn
from torch.nn.utils import parametrizations

import pnml

from .networks import CLASSES, rows

if TYPE_CHECKING:
    from collections.abc import Callable


def as_it_is(layer: nn.Module) -> nn.Module:
    return layer


def network(made: Callable[[nn.Module], nn.Module]) -> nn.Sequential:
    body = [nn.Sequential(made(nn.Linear(8, 8)), nn.Tanh()) for _ in range(3)]
    return nn.Sequential(*body, made(nn.Linear(8, CLASSES)))


@pytest.mark.parametrize(
    "made", [parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal]
)
def test_layers_with_made_weights_are_watched(made: Callable[[nn.Module], nn.Module]) -> None:
    plain, guarded = (pnml.guard(model).fit([rows(60)], progress=False) for model in (network(as_it_is), network(made)))
    assert guarded.layers == plain.layers == ("0.1", "1.1", "2.0")
