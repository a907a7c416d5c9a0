"""Heads whose weight is made of others when they are called: normalised, pruned, or of a parametrisation."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import pnml

from .networks import CLASSES, loader, mlp, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def _weight_norm(layer: nn.Module) -> nn.Module:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # the older of the two, which many models still have
        return nn.utils.weight_norm(layer)


KINDS: dict[str, Callable[..., Any]] = {
    "weight norm": parametrizations.weight_norm,
    "spectral norm": parametrizations.spectral_norm,
    "orthogonal": parametrizations.orthogonal,
    "older weight norm": _weight_norm,
    "older spectral norm": nn.utils.spectral_norm,
    "pruned": lambda layer: prune.l1_unstructured(layer, "weight", 0.3),  # type: ignore[no-untyped-call]
}


def network(kind: str) -> Any:
    model: Any = mlp()
    model[3] = KINDS[kind](model[3])
    return model


@pytest.mark.parametrize("kind", KINDS)
def test_a_detector_is_loaded_for_a_copy_in_training_mode(kind: str, tmp_path: Path) -> None:
    model = network(kind).eval()
    guard = pnml.guard(model).fit(loader(rows(100)), progress=False)
    assert guard.head_name == "3"
    guard.save(tmp_path / "detector.safetensors")
    torch.manual_seed(1)
    copy = network(kind)
    copy.load_state_dict(model.state_dict())
    before = {name: value.clone() for name, value in copy.state_dict().items()}
    loaded = pnml.guard(copy.train()).load(tmp_path / "detector.safetensors")
    torch.testing.assert_close(loaded(rows(9, seed=1)).regret, guard(rows(9, seed=1)).regret)
    for name, value in copy.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_lazy_and_tied_weights() -> None:
    lazy = nn.Sequential(nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(8), nn.Tanh(), nn.LazyLinear(CLASSES))
    assert pnml.guard(lazy).fit([rows(60)], progress=False).head_name == "4"
    tied = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8))
    tied[0].weight = tied[4].weight
    guard = pnml.guard(tied).fit([rows(60)], progress=False)
    assert guard.head_name == "4"
    assert torch.equal(guard(rows(9)).logits, tied(rows(9)))


def test_another_pruned_head_is_refused_at_the_first_call(tmp_path: Path) -> None:
    pnml.guard(network("pruned")).fit([rows(100)], progress=False).save(tmp_path / "detector.safetensors")
    other = network("pruned")
    with torch.no_grad():
        other[3].weight_orig.mul_(2)
    guard = pnml.guard(other).load(tmp_path / "detector.safetensors", check_model=False)
    with pytest.raises(ValueError, match="the detector was fitted for another last layer"):
        guard(rows(5))
