"""A guard of other weights than it was fitted with says so at the call, and is refused when it is loaded."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import pnml
from pnml.pytorch.export import GuardGraph
from pnml.pytorch.guard import PrecisionWarning
from pnml.pytorch.weights import ModelChangedWarning, WeightWatch, fingerprint

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
    ],
)
def test_what_leaves_the_weights_alone_does_not_warn(harmless: Callable[[pnml.Guard], object]) -> None:
    guard = pnml.guard(CNN().eval()).fit(loader(images(60)), progress=False)
    expected = guard(images(4)).regret
    harmless(guard)
    torch.testing.assert_close(guard(images(4)).regret, expected)
    torch.testing.assert_close(copy.deepcopy(guard)(images(4)).regret, expected)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_the_same_weights_in_another_precision_are_refused_at_load(dtype: torch.dtype, tmp_path: Path) -> None:
    fitted(mlp()).save(tmp_path / "detector.safetensors")
    with pytest.raises(ValueError, match=r"or with the same in another precision: fit again as you serve it"):
        pnml.guard(mlp().to(dtype)).load(tmp_path / "detector.safetensors")


def test_the_same_weights_in_finer_precision_are_said() -> None:
    guard = fitted(mlp())
    guard.double()
    with pytest.warns(PrecisionWarning), pytest.warns(ModelChangedWarning, match="or their precision has"):
        guard(rows(5).double())


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
    watch = WeightWatch(model)
    assert not watch.has_moved()
    with torch.no_grad():
        model.scale.mul_(2)
    assert watch.has_moved()


def test_inference_mode_is_not_in_the_way() -> None:
    guard = fitted(mlp().eval())
    with torch.inference_mode():
        found: Tensor = guard(rows(5)).regret
    assert torch.equal(found, guard(rows(5)).regret)


class Counting(nn.Module):
    """Writes into buffers when it runs: in place, and by replacing them."""

    calls: Tensor
    rows: Tensor
    scale: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()
        self.register_buffer("calls", torch.zeros(()))
        self.register_buffer("rows", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        self.rows = self.rows + len(x)
        logits: Tensor = self.inner(x * self.scale)
        return logits


def test_buffers_that_the_model_counts_in_are_no_weights(tmp_path: Path) -> None:
    model = Counting()
    guard = pnml.guard(model).fit([rows(100)], progress=False)
    reading: Any = guard.fitted().reading
    assert reading["counters"] == [".calls", ".rows"]
    guard.save(tmp_path / "detector.safetensors")
    for _ in range(3):
        guard(rows(5))
    loaded = pnml.guard(model).load(tmp_path / "detector.safetensors")
    loaded(rows(5))
    model.scale.mul_(2)
    for each in (guard, loaded):
        with pytest.warns(ModelChangedWarning):
            each(rows(5))
    with pytest.raises(ValueError, match="fitted with other weights"):
        pnml.guard(model).load(tmp_path / "detector.safetensors")


def test_another_model_is_refused_in_words() -> None:
    guard = fitted(mlp())
    with pytest.raises(AttributeError, match="a guard is of one model: make another one"):
        guard.model = mlp()
