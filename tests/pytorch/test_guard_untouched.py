"""After every call of the guard the model is what it was before, to the bit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NoReturn

import pytest
import torch
from torch import Tensor, nn

import pnml
from pnml.pytorch.export import GuardGraph

from .networks import CLASSES, CNN, channels_last, images, loader, mlp, rows

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOOKS = [name for name in vars(nn.Linear(1, 1)) if name.endswith("_hooks")]


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Everything about a model that a call of the guard could move."""
    tensors = {**dict(model.named_parameters()), **dict(model.named_buffers())}
    return {
        "modes": {name: module.training for name, module in model.named_modules()},
        "hooks": {name: [len(getattr(module, kind)) for kind in HOOKS] for name, module in model.named_modules()},
        "values": {name: tensor.detach().clone() for name, tensor in tensors.items()},
        "gradients": {name: None if t.grad is None else t.grad.clone() for name, t in tensors.items()},
        "requires_grad": {name: tensor.requires_grad for name, tensor in tensors.items()},
        "strides": {name: (tensor.dtype, tensor.stride(), tensor.data_ptr()) for name, tensor in tensors.items()},
        "attributes": {name: sorted(vars(module)) for name, module in model.named_modules()},
    }


def assert_same(before: dict[str, Any], after: dict[str, Any]) -> None:
    for kind, expected in before.items():
        if kind in {"values", "gradients"}:
            torch.testing.assert_close(after[kind], expected, rtol=0, atol=0, equal_nan=True)
        else:
            assert after[kind] == expected, kind


def lived_in() -> CNN:
    """A model in the middle of its life: mixed modes, a frozen layer, gradients, hooks of its own, channels last."""
    torch.manual_seed(0)
    model = channels_last(CNN())
    model(images(8)).sum().backward()
    model.body[1].eval()
    model.body[0].requires_grad_(False)  # noqa: FBT003 - torch's own signature
    model.classifier.register_forward_hook(lambda *_: None)
    model.classifier.register_forward_pre_hook(lambda *_: None)
    return model


def fail(*_: Any) -> NoReturn:
    raise RuntimeError("in the middle of a forward pass")


def with_nan(count: int) -> Tensor:
    x = images(count)
    x[1, 0, 0, 0] = math.nan
    return x


def fit_and(use: Callable[[pnml.Guard], object]) -> Callable[[CNN, Path], object]:
    return lambda model, _: use(pnml.guard(model).fit(loader(images(40)), progress=False))


CALLS: dict[str, Callable[[CNN, Path], object]] = {
    "guard": lambda model, _: pnml.guard(model),
    "fit": fit_and(lambda guard: guard),
    "calibrate": fit_and(lambda guard: guard.calibrate(loader(images(40, seed=1)), progress=False)),
    "leave one out": fit_and(lambda guard: guard.calibrate([images(40)], leave_one_out=True, progress=False)),
    "forward": fit_and(lambda guard: guard(images(4))),
    "forward on NaN": fit_and(lambda guard: guard(with_nan(4))),
    "save": lambda model, folder: pnml.guard(model).fit([images(9)], progress=False).save(folder / "d.safetensors"),
    "graph": fit_and(GuardGraph),
}
FAILING: dict[str, Callable[[CNN, Path], object]] = {
    "fit on NaN": lambda model, _: pnml.guard(model).fit([images(8), with_nan(8)], progress=False),
    "calibrate on NaN": fit_and(lambda guard: guard.calibrate([with_nan(40)], progress=False)),
    "fit on another shape": lambda model, _: pnml.guard(model).fit([rows(4)], progress=False),
    "fit with a wrong head": lambda model, _: pnml.guard(model, head="nowhere"),
    "fit on a broken loader": lambda model, _: pnml.guard(model).fit(map(fail, range(3)), progress=False),
}


@pytest.mark.parametrize("call", CALLS)
def test_model_is_untouched(call: str, tmp_path: Path) -> None:
    model = lived_in()
    before = snapshot(model)
    CALLS[call](model, tmp_path)
    assert_same(before, snapshot(model))


@pytest.mark.parametrize("call", FAILING)
def test_model_is_untouched_after_an_exception(call: str, tmp_path: Path) -> None:
    model = lived_in()
    before = snapshot(model)
    with pytest.raises((ValueError, RuntimeError)):
        FAILING[call](model, tmp_path)
    assert_same(before, snapshot(model))


def test_model_is_untouched_when_its_own_forward_raises() -> None:
    model = lived_in()
    guard = pnml.guard(model).fit([images(40)], progress=False)
    handle = model.drop.register_forward_hook(fail)
    before = snapshot(model)
    for work in (lambda: guard(images(4)), lambda: guard.fit([images(4)], progress=False)):
        with pytest.raises(RuntimeError, match="in the middle of a forward pass"):
            work()
        assert_same(before, snapshot(model))
    handle.remove()


@pytest.mark.parametrize("training", [True, False])
def test_outputs_are_bit_equal_and_in_eval_mode_inside(training: bool) -> None:  # noqa: FBT001
    model = lived_in().train(training)
    model.drop.p = 0.0
    plain = model(images(8)) if not training else None
    result = pnml.guard(model).fit([images(40)], progress=False)(images(8))
    if plain is not None:
        assert torch.equal(result.logits, plain.detach())
    assert not result.logits.requires_grad
    with torch.no_grad():
        assert torch.equal(result.logits, model.eval()(images(8)))


def test_training_goes_on_as_if_nothing_had_happened() -> None:
    weights = []
    for guarded in (False, True):
        torch.manual_seed(0)
        model = mlp()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        for step in range(4):
            if guarded:
                pnml.guard(model).fit([rows(30)], progress=False)(rows(5))
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(model(rows(16, step)), torch.arange(16) % CLASSES))
            optimizer.step()
        weights.append(model.state_dict())
    torch.testing.assert_close(weights[0], weights[1], rtol=0, atol=0)


def test_train_is_not_called_on_modules_that_act_on_it() -> None:
    class Merging(nn.Linear):
        """As low-rank adapters do: leaving training mode changes the weights."""

        def train(self, mode: bool = True) -> Merging:  # noqa: FBT001, FBT002 - torch's own signature
            if self.training and not mode:
                with torch.no_grad():
                    self.weight += 1
            super().train(mode)
            return self

    model = nn.Sequential(nn.Linear(8, 4), nn.Tanh(), Merging(4, CLASSES))
    before = snapshot(model)
    pnml.guard(model).fit([rows(30)], progress=False)(rows(5))
    assert_same(before, snapshot(model))
