"""The guard on classifiers whose last layer is no plain linear one: it scores as the embeddings, taken by hand, do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import pnml
from pnml.pytorch.export import GuardGraph
from pnml.pytorch.head import HeadWarning

from .classifiers import Classifier, classifiers
from .networks import seeded

if TYPE_CHECKING:
    from pathlib import Path

CLASSIFIERS = classifiers()
WARNS = {"softmax", "log_softmax", "one logit", "one logit, squeezed", "one logit, sigmoid"}


def fitted(case: Classifier, name: str, **options: Any) -> pnml.Guard:
    guard = pnml.guard(case.model, **options)
    loader = [case.batch(30, seed) for seed in range(2, 6)]
    if name not in WARNS:
        return guard.fit(loader, progress=False)
    with pytest.warns(HeadWarning, match="taken"):
        return guard.fit(loader, progress=False)


def score(guard: pnml.Guard, batch: Any) -> Any:
    return guard(**batch) if isinstance(batch, dict) else guard(batch)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_guard_scores_what_enters_the_last_layer(name: str, tmp_path: Path) -> None:
    case = CLASSIFIERS[name]()
    guard = fitted(case, name, layers="last")
    assert case.notes in repr(guard)
    detector, fresh = guard.fitted(), case.batch(9, 1)
    np.testing.assert_allclose(detector.weight, case.weight.double(), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(detector.bias, case.bias.double(), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        train = torch.cat([case.embed(case.batch(30, seed)) for seed in range(2, 6)])
        embeddings = case.embed(fresh)
    by_hand = pnml.Detector(case.weight, case.bias).fit(train)(embeddings)
    result = score(guard, fresh)
    torch.testing.assert_close(result.regret, by_hand.regret, rtol=1e-3, atol=1e-5)
    expected = (embeddings.double() @ case.weight.double().T + case.bias.double()).softmax(dim=1)
    torch.testing.assert_close(result.probabilities.double(), expected, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(result.logits.double().softmax(dim=1), expected, rtol=1e-4, atol=1e-5)
    guard.save(tmp_path / "detector.safetensors")
    loaded = pnml.guard(case.model, layers="last").load(tmp_path / "detector.safetensors")
    assert torch.equal(score(loaded, fresh).regret, result.regret)


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_earlier_layers_are_watched_too(name: str) -> None:
    case = CLASSIFIERS[name]()
    guard = fitted(case, name)
    assert guard.layers
    assert score(guard, case.batch(4, 1)).leverage_by_layer.shape == (4, len(guard.fitted().block_names))


def test_a_sample_without_an_answer_is_flagged_where_one_token_is_taken() -> None:
    case = CLASSIFIERS["recurrent, last step"]()
    guard = fitted(case, "recurrent, last step", layers="last")
    guard.calibrate([case.batch(40, 8)], progress=False)
    fresh = case.batch(4, 1)
    fresh[2, 5] = torch.nan  # the first steps are finite
    result = guard(fresh)
    assert result.regret.isnan().tolist() == [False, False, True, False]
    assert result.is_ood is not None
    assert bool(result.is_ood[2])


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", [name for name in CLASSIFIERS if name not in {"GPT-2", "Llama", "Qwen2"}])
def test_heads_are_found_in_every_precision(name: str, dtype: torch.dtype) -> None:
    case = CLASSIFIERS[name]()
    fresh = case.batch(9, 1)
    expected = score(fitted(case, name, layers="last"), fresh)
    case.model.to(dtype)
    converted = case._replace(batch=lambda count, seed: case.batch(count, seed).to(dtype))
    guard = fitted(converted, name, layers="last")
    assert case.notes in repr(guard)
    result = score(guard, fresh.to(dtype))
    rtol, atol = (1e-3, 1e-5) if dtype == torch.float64 else (0.3, 0.02)
    same = result.prediction == expected.prediction  # rounding may decide between two classes
    assert int(same.sum()) >= 7
    torch.testing.assert_close(result.regret[same].float(), expected.regret[same], rtol=rtol, atol=atol)


@pytest.mark.filterwarnings("ignore:The tensor attributes:UserWarning")  # of nn.GRU's own
@pytest.mark.parametrize("name", ["softmax", "one logit, sigmoid", "recurrent, last step"])
def test_a_graph_has_the_same_head(name: str) -> None:
    case = CLASSIFIERS[name]()
    guard = fitted(case, name, layers="last").eval()
    shapes = {"args": ({0: torch.export.Dim.DYNAMIC},)}
    with torch.no_grad():
        # Not strict, as export_onnx does it: what runs is traced, not what is written. Older PyTorch asks to be told.
        program = torch.export.export(GuardGraph(guard), (case.batch(9, 1),), dynamic_shapes=shapes, strict=False)
        _, probabilities, regret, *_ = program.module()(case.batch(6, 3))
    expected = guard(case.batch(6, 3))
    torch.testing.assert_close(probabilities, expected.probabilities, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(regret, expected.regret, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", ["low rank", "GPT-2"])
def test_a_head_that_was_found_is_found_again(name: str) -> None:
    case = CLASSIFIERS[name]()
    guard = fitted(case, name, layers="last")
    before = score(guard, case.batch(9, 1)).regret
    guard.calibrate([case.batch(40, 8)], progress=False)
    assert torch.equal(score(guard, case.batch(9, 1)).regret, before)
    guard.fit([case.batch(30, seed) for seed in range(2, 6)], progress=False)
    assert torch.equal(score(guard, case.batch(9, 1)).regret, before)


def test_a_model_that_ends_in_softmax_is_told_once_and_also_when_its_head_is_named() -> None:
    case = CLASSIFIERS["softmax"]()
    train, fresh = [case.batch(30, seed) for seed in range(2, 6)], case.batch(9, 1)
    with pytest.warns(HeadWarning, match="the model ends in softmax: the output of its head 'head' is taken"):
        found = pnml.guard(case.model).fit(train, progress=False)
    found.calibrate([case.batch(30, 7)], progress=False)  # a second warning would be an error
    with pytest.warns(HeadWarning):
        named = pnml.guard(case.model, head="head").fit(train, progress=False)
    assert torch.equal(named(fresh).regret, found(fresh).regret)
    with torch.no_grad():
        torch.testing.assert_close(named(fresh).probabilities, case.model(fresh), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["softmax", "one logit", "convolution of a pixel", "low rank", "GPT-2"])
def test_a_detector_of_another_head_is_refused_at_once(name: str, tmp_path: Path) -> None:
    case = CLASSIFIERS[name]()
    fitted(case, name, layers="last").save(tmp_path / "detector.safetensors")
    with torch.no_grad():
        for parameter in case.model.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, generator=seeded(9)))
    with pytest.raises(ValueError, match="was fitted for another last layer"):
        pnml.guard(case.model).load(tmp_path / "detector.safetensors", check_model=False)
