"""The modules of a model are found once, and again when one of them changes."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

import pnml
from pnml.pytorch.module_tree import Held, ModuleTree, submodule, submodules

if TYPE_CHECKING:
    from collections.abc import Callable


def network() -> nn.Sequential:
    return nn.Sequential(nn.Sequential(nn.Linear(3, 4), nn.ReLU()), nn.Dropout(0.9), nn.Linear(4, 2))


def test_all_modules_are_found_once() -> None:
    model, tree = network(), ModuleTree()
    assert set(tree.modules(model)) == set(model.modules())
    assert tree.modules(model) is tree.modules(model)
    assert not tree.has_changed(model)


def test_changed_modules_are_found() -> None:
    model, tree = network(), ModuleTree()
    inner = submodule(model, "0")
    for change in (
        lambda: setattr(model, "1", nn.Identity()),
        lambda: inner.append(nn.Tanh()),  # type: ignore[operator]
        lambda: inner.register_module("2", None),
        lambda: submodule(model, "0.1").add_module("child", nn.ReLU()),
    ):
        tree.modules(model)
        change()
        assert tree.has_changed(model)
        assert set(tree.modules(model)) == set(model.modules())
    assert tree.has_changed(copy.deepcopy(model))


def test_the_way_to_a_module() -> None:
    model = network()
    assert submodules(model, "0.1") == [model[0], model.get_submodule("0.1")]
    assert submodule(model, "") is model
    model.register_module("gone", None)
    with pytest.raises(AttributeError, match="no module 'gone'"):
        submodule(model, "gone")


def test_module_put_in_later_is_in_eval_mode_during_a_call() -> None:
    model = network()
    rows = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    nn.init.constant_(model.get_parameter("0.0.bias"), 2)  # so that no row leaves every unit silent
    guard = pnml.guard(model, layers="last").fit([rows], progress=False)
    expected = guard(torch.ones(2, 3)).logits
    model[1] = nn.Dropout(0.5).train()
    torch.testing.assert_close(guard(torch.ones(2, 3)).logits, expected)
    assert model[1].training


def test_what_mappings_hold_is_compared_by_identity() -> None:
    """Also where nothing was held before, and where an entry only moved from one mapping to the one before it."""
    first, second, third = torch.ones(1), torch.ones(1), torch.ones(1)
    changes: list[Callable[[list[dict[str, torch.Tensor]]], object]] = [
        lambda held: held[2].update(new=first),
        lambda held: held[1].clear(),
        lambda held: held[0].update(x=torch.ones(1)),  # as large, and another
        lambda held: held[0].update(y=held[1].pop("y")),  # all the same, one after the other
    ]
    for change in changes:
        mappings = [{"x": first}, {"y": second, "z": third}, {}]
        held = Held(mappings)
        assert held.is_same()
        change(mappings)
        assert not held.is_same()


def test_a_call_looks_for_changed_modules_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = network()
    nn.init.constant_(model.get_parameter("0.0.bias"), 2)
    rows = torch.randn(50, 3, generator=torch.Generator().manual_seed(0))
    guard = pnml.guard(model, layers="last").fit([rows], progress=False)
    looks, has_changed = [], ModuleTree.has_changed

    def look(tree: ModuleTree, model: nn.Module) -> bool:
        looks.append(tree)
        return has_changed(tree, model)

    monkeypatch.setattr(ModuleTree, "has_changed", look)
    guard(torch.ones(2, 3))
    assert len(looks) == 1
