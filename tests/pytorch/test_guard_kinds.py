"""The guard on models and inputs of other kinds: half precision, autocast, channels last, compiled, in parallel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import pnml
from pnml.pytorch.layers import LayersNotFoundWarning

from .networks import CLASSES, CNN, FEATURES, channels_last, images, loader, mlp, rows


def guarded(model: nn.Module, train: Tensor, layers: str = "auto") -> pnml.Guard:
    return pnml.guard(model, layers=layers).fit(loader(train), progress=False)


def test_bfloat16_model() -> None:
    model = mlp().eval()
    reference = guarded(model, rows(200), "last")(rows(20, seed=1))
    half = mlp().eval().bfloat16()
    guard = guarded(half, rows(200).bfloat16(), "last")
    result = guard(rows(20, seed=1).bfloat16())
    assert result.logits.dtype == torch.bfloat16
    assert result.regret.dtype == torch.float32
    assert next(half.parameters()).dtype == torch.bfloat16
    detector = guard.fitted()
    np.testing.assert_array_equal(detector.weight, half[3].weight.detach().double().numpy())  # type: ignore[operator]
    first, second = reference.probabilities.topk(2).values.T
    clear = first - second > 0.002  # between classes closer than that, rounding decides
    assert int(clear.sum()) > 15
    torch.testing.assert_close(result.regret[clear], reference.regret[clear], rtol=0.1, atol=0.01)


def test_float64_model_keeps_its_precision() -> None:
    result = guarded(mlp().double(), rows(200).double())(rows(20).double())
    assert result.regret.dtype == torch.float64
    assert result.probabilities.dtype == torch.float64


def test_autocast_is_the_models_alone() -> None:
    model = mlp().eval()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        guard = guarded(model, rows(200), "last")
        result = guard(rows(20, seed=1))
        threshold = guard.calibrate(loader(rows(48, seed=2)), progress=False)
        assert torch.is_autocast_enabled("cpu")
        logits = model(rows(20, seed=1))
    assert result.logits.dtype == torch.bfloat16
    assert torch.equal(result.logits, logits)
    with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
        train, fresh, held_out = (
            torch.cat([model[:3](x) for x, _ in loader(rows(n, seed))]) for n, seed in ((200, 0), (20, 1), (48, 2))
        )
    assert train.dtype == torch.bfloat16
    detector = pnml.Detector(model[3].weight, model[3].bias).fit(train)
    expected = detector.score(fresh.float(), logits=result.logits)
    torch.testing.assert_close(result.regret, expected, rtol=1e-4, atol=1e-6)
    assert (threshold.count, len(held_out)) == (48, 48)


def test_channels_last_input_reaches_the_model_as_it_is() -> None:
    seen = []
    model = channels_last(CNN()).eval()
    handle = model.body[0].register_forward_pre_hook(
        lambda _, args: seen.append(args[0].is_contiguous(memory_format=torch.channels_last))
    )
    train, fresh = (images(n).to(memory_format=torch.channels_last) for n in (60, 10))
    result = pnml.guard(model).fit([train], progress=False)(fresh)
    handle.remove()
    assert all(seen)
    plain = guarded(model, images(60))(images(10))
    torch.testing.assert_close(result.regret, plain.regret, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("warm", [True, False])
def test_compiled_model(backend: str, warm: bool) -> None:  # noqa: FBT001
    model = mlp().eval()
    expected = guarded(model, rows(100))(rows(20, seed=1)).regret
    compiled: Any = torch.compile(model, backend=backend)
    if warm:
        with torch.no_grad():
            compiled(rows(16))
    guard = guarded(compiled, rows(100))
    assert guard.head_name == "3", "the name it has in the model that was compiled"
    assert torch.equal(guard(rows(20, seed=1)).regret, expected)
    assert not compiled.training


@pytest.mark.parametrize("warm", [True, False])
def test_model_compiled_in_place(warm: bool) -> None:  # noqa: FBT001
    model = CNN().eval()
    expected = guarded(model, images(60))(images(10, seed=1)).regret
    model.compile(backend="eager")
    if warm:
        with torch.no_grad():
            model(images(16))
    assert torch.equal(guarded(model, images(60))(images(10, seed=1)).regret, expected)


def test_backbone_compiled_in_place_falls_back_to_embeddings_alone() -> None:
    model = CNN().eval()
    expected = guarded(model, images(60), "last")(images(10, seed=1)).regret
    model.body.compile(backend="eager")
    with pytest.warns(LayersNotFoundWarning, match="The embeddings alone are watched"):
        guard = guarded(model, images(60))
    assert guard.layers == ()
    assert torch.equal(guard(images(10, seed=1)).regret, expected)


def test_compiled_backbone_is_one_layer() -> None:
    model = CNN().eval()
    expected = pnml.guard(model, layers=["body"]).fit(loader(images(60)), progress=False)(images(10, seed=1)).regret
    model.body = torch.compile(model.body, backend="eager")  # type: ignore[assignment]
    guard = guarded(model, images(60))
    assert guard.layers == ("body",)
    assert torch.equal(guard(images(10, seed=1)).regret, expected)


def test_head_inside_a_compiled_part_is_not_guessed_at() -> None:
    model = CNN().eval()
    compiled: Any = torch.compile(model, backend="eager")
    outer = nn.Sequential(nn.Identity(), compiled)
    with torch.no_grad():
        outer(images(16))
    with pytest.raises(ValueError, match=r"no linear layer puts out what the model answers"):
        guarded(outer, images(60))
    with pytest.raises(ValueError, match="the head was not called"):
        pnml.guard(outer, head="1._orig_mod.classifier").fit([images(16)], progress=False)


def test_compiled_model_in_training_mode_stays_in_it() -> None:
    compiled: Any = torch.compile(mlp(), backend="eager")
    compiled.train()
    guarded(compiled, rows(50))(rows(5))
    assert all(module.training for module in compiled.modules())


def test_data_parallel_model() -> None:
    model = mlp().eval()
    guard = guarded(nn.DataParallel(model), rows(100))
    assert guard.head_name == "3"
    assert torch.equal(guard(rows(20)).regret, guarded(model, rows(100))(rows(20)).regret)


def test_head_without_bias() -> None:
    model = nn.Sequential(nn.Linear(8, FEATURES), nn.Tanh(), nn.Linear(FEATURES, CLASSES, bias=False))
    guard = guarded(model, rows(100))
    np.testing.assert_array_equal(guard.fitted().bias, np.zeros(CLASSES))
