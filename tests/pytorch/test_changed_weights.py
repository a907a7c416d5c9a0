"""A guard of other weights than it was fitted with says so at the call, and is refused when it is loaded."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file
from torch import Tensor, nn

import pnml
from pnml.backend.state import save_state
from pnml.pytorch.weights import ModelChangedWarning
from pnml.pytorch.export import GuardGraph
from pnml.pytorch.weights import WeightWatch, fingerprint

from .networks import CNN, channels_last, images, loader, mlp, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def fine_tune(model: nn.Module) -> None:
    """Take a step of an ordinary optimiser."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model(rows(16)).sum().backward()
    optimizer.step()
    optimizer.zero_grad()


def load_checkpoint(model: nn.Module) -> None:
    model.load_state_dict(mlp(seed=1).state_dict())


def replace_parameter(model: nn.Module) -> None:
    model.get_submodule("0").bias = nn.Parameter(torch.full((12,), 0.2))


def replace_module(model: nn.Module) -> None:
    assert isinstance(model, nn.Sequential)
    model[1] = nn.Linear(12, 12)


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "fine-tuning": fine_tune,
    "another checkpoint": load_checkpoint,
    "another parameter": replace_parameter,
    "another module": replace_module,
    "data in place": lambda model: model.get_parameter("0.weight").data.mul_(1.01),
    "data assigned": lambda model: setattr(model.get_parameter("0.bias"), "data", torch.full((12,), 0.2)),
}


def fitted(model: nn.Module) -> pnml.Guard:
    return pnml.guard(model, layers="last").fit([rows(100)], progress=False)


@pytest.mark.parametrize("change", list(CHANGES))
def test_changed_weights_warn_once_for_every_change(change: str) -> None:
    model = mlp()
    guard = fitted(model)
    guard(rows(5))
    CHANGES[change](model)
    with pytest.warns(ModelChangedWarning, match=r"weights have changed .* guard\.fit\(train_loader\)") as caught:
        guard(rows(5))
    assert caught[0].filename == __file__, "it points at the call"
    guard(rows(5))  # warnings are errors here: the second call does not warn
    with torch.no_grad():
        model.get_parameter("0.weight").add_(0.1)
    with pytest.warns(ModelChangedWarning):
        guard.calibrate([rows(50)], progress=False)
    with torch.no_grad():
        model.get_parameter("0.weight").mul_(1.5)
    with pytest.warns(ModelChangedWarning):
        GuardGraph(guard)
    guard.fit([rows(100)], progress=False)
    guard(rows(5))


def test_buffers_count_as_weights() -> None:
    model = CNN().eval()
    guard = pnml.guard(model).fit(loader(images(60)), progress=False)
    with torch.no_grad():
        model.train()(images(60) * 3)
    with pytest.warns(ModelChangedWarning):
        guard(images(4))


def test_weights_that_come_back_are_the_fitted_ones() -> None:
    model = mlp()
    guard, before = fitted(model), copy.deepcopy(model.state_dict())
    model.load_state_dict(mlp(seed=1).state_dict())
    with pytest.warns(ModelChangedWarning):
        guard(rows(5))
    model.load_state_dict(before)
    guard(rows(5))


@pytest.mark.parametrize(
    "harmless",
    [
        lambda guard: guard.train(),
        lambda guard: guard.requires_grad_(requires_grad=False),
        lambda guard: guard.model.load_state_dict(guard.model.state_dict()),
        lambda guard: guard.to(memory_format=torch.channels_last),
        lambda guard: guard.model(images(4)).sum().backward(),
        lambda guard: setattr(guard, "model", nn.DataParallel(guard.model)),
        lambda guard: setattr(guard, "model", copy.deepcopy(guard.model)),
    ],
)
def test_what_leaves_the_weights_alone_does_not_warn(harmless: Callable[[pnml.Guard], object]) -> None:
    guard = pnml.guard(CNN().eval()).fit(loader(images(60)), progress=False)
    expected = guard(images(4)).regret
    harmless(guard)
    torch.testing.assert_close(guard(images(4)).regret, expected)
    torch.testing.assert_close(copy.deepcopy(guard)(images(4)).regret, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_another_precision_is_told_apart(dtype: torch.dtype, tmp_path: Path) -> None:
    guard = fitted(mlp())
    guard.save(tmp_path / "detector.safetensors")
    guard.to(dtype)
    with pytest.warns(ModelChangedWarning, match=r"in another precision: .* guard\.calibrate\(val_loader\)"):
        found = guard(rows(5).to(dtype))
    assert bool(found.regret.isfinite().all())
    guard(rows(5).to(dtype))
    with pytest.raises(ValueError, match=r"in another precision: .*load\(path\)\.half\(\)"):
        pnml.guard(mlp().to(dtype)).load(tmp_path / "detector.safetensors")


def test_weights_held_in_more_precision_than_fitted_are_recognised() -> None:
    guard = fitted(mlp().bfloat16().float())
    guard.bfloat16()
    with pytest.warns(ModelChangedWarning, match="in another precision"):
        guard(rows(5).bfloat16())


@pytest.mark.parametrize("layers", ["auto", "last"])
def test_load_refuses_other_weights_before_the_last_layer(layers: str, tmp_path: Path) -> None:
    path = tmp_path / "detector.safetensors"
    guard = pnml.guard(mlp(), layers=layers).fit([rows(100)], progress=False)
    guard.save(path)
    other = mlp()
    with torch.no_grad():
        other.get_parameter("0.weight")[3, 3] += 0.25
    refusing = pnml.guard(other)
    with pytest.raises(ValueError, match=r"fitted with other weights .* load\(path, check_model=False\)"):
        refusing.load(path)
    assert (refusing.head_name, refusing.detector) == (None, None)
    told = pnml.guard(other).load(path, check_model=False)
    assert bool(told(rows(5)).regret.isfinite().all()), "without a warning: it was told"
    with torch.no_grad():
        other.get_parameter("0.weight")[3, 3] -= 0.5
    with pytest.warns(ModelChangedWarning):
        told(rows(5))
    same = pnml.guard(mlp()).load(path)
    assert torch.equal(same(rows(5)).regret, guard(rows(5)).regret)
    same.save(tmp_path / "again.safetensors")
    compiled: Any = torch.compile(mlp(), backend="eager")
    pnml.guard(compiled).load(tmp_path / "again.safetensors")


def test_files_without_a_fingerprint_load_as_before(tmp_path: Path) -> None:
    path = tmp_path / "detector.safetensors"
    detector = fitted(mlp()).fitted()
    assert detector.model_fingerprint
    detector.model_fingerprint = {}
    detector.save(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    info = json.loads(metadata["info"])
    assert info.pop("model_fingerprint") == {}
    save_state(path, metadata["kind"], int(metadata["version"]), load_file(path), info)
    model = mlp()
    with torch.no_grad():
        model.get_parameter("0.weight").add_(1)
    guard = pnml.guard(model).load(path)
    guard(rows(5))
    fine_tune(model)
    with pytest.warns(ModelChangedWarning):
        guard(rows(5))


def test_fingerprints_differ_where_models_do() -> None:
    """By name, shape, type and every value, and by nothing else."""
    model = CNN().eval()
    same = [
        copy.deepcopy(model),
        channels_last(copy.deepcopy(model)),
        nn.DataParallel(model),
        torch.compile(model, backend="eager"),
    ]
    inside: Any = copy.deepcopy(model)
    inside.body = torch.compile(inside.body, backend="eager")
    for one in (*same, inside, copy.deepcopy(model).train().requires_grad_(requires_grad=False)):
        assert fingerprint(one) == fingerprint(model)
    found = {fingerprint(model)["exact"]}
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        other = copy.deepcopy(model)
        with torch.no_grad():
            dict((*other.named_parameters(), *other.named_buffers()))[name].view(-1)[-1] += 1
        assert tensor.shape == dict((*other.named_parameters(), *other.named_buffers()))[name].shape
        found.add(fingerprint(other)["exact"])
    renamed = nn.Sequential(model.body, nn.Sequential(model.classifier))
    found |= {fingerprint(renamed)["exact"], fingerprint(copy.deepcopy(model).double())["exact"]}
    assert len(found) == 1 + len(model.state_dict()) + 2


def test_unusual_weights_have_fingerprints() -> None:
    """Scalars, nothing, caches, sparse, without values, made in inference mode."""

    class Odd(nn.Module):
        def __init__(self, cache: float, *, sparse: float = 1.0) -> None:
            super().__init__()
            self.scale, self.none = nn.Parameter(torch.tensor(2.0)), None
            self.register_parameter("nothing", None)
            self.register_buffer("empty", torch.empty(0, 3))
            self.register_buffer("cache", torch.full((2,), cache), persistent=False)
            self.register_buffer("sparse", (torch.eye(3) * sparse).to_sparse())
            self.register_buffer("far", torch.empty(4, device="meta"))
            with torch.inference_mode():
                self.register_buffer("inferred", torch.ones(3))

    model = Odd(cache=1.0)
    assert fingerprint(model) == fingerprint(Odd(cache=2.0)), "what no checkpoint holds may differ"
    assert fingerprint(model) != fingerprint(Odd(cache=1.0, sparse=2.0))
    watch, modules = WeightWatch(), list(model.modules())
    watch.renew(modules)
    assert not watch.has_moved(modules)
    with torch.no_grad():
        model.scale.mul_(2)
    assert watch.has_moved(modules)


def test_inference_mode_is_not_in_the_way() -> None:
    guard = fitted(mlp().eval())
    with torch.inference_mode():
        found: Tensor = guard(rows(5)).regret
    assert torch.equal(found, guard(rows(5)).regret)


@pytest.mark.parametrize("fails", [False, True])
def test_a_loaded_guard_still_knows_its_last_layer_after_a_fit_that_failed(*, fails: bool, tmp_path: Path) -> None:
    model = mlp()
    pnml.guard(model).fit([rows(100)], progress=False).save(tmp_path / "detector.safetensors")
    guard = pnml.guard(model).load(tmp_path / "detector.safetensors")
    if fails:
        with pytest.raises(ValueError, match="no samples"):
            guard.fit([], progress=False)
    load_checkpoint(model)
    with pytest.raises(ValueError, match="was fitted for another last layer"):
        guard(rows(10))
