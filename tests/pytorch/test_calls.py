"""What a guard is called with: no samples, samples without a batch, batches as loaders yield them, missing values."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.utils.data import TensorDataset

import pnml

from .networks import CLASSES, CNN, images, loader, mlp, rows, vit

if TYPE_CHECKING:
    from pathlib import Path


def calibrated(model: nn.Module) -> pnml.Guard:
    guard = pnml.guard(model).fit(loader(images(60)), progress=False)
    guard.calibrate(loader(images(40, seed=1)), progress=False)
    return guard


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_samples_give_an_empty_result_also_after_loading(dtype: torch.dtype, tmp_path: Path) -> None:
    model = mlp().to(dtype)
    guard = pnml.guard(model).fit([rows(100).to(dtype)], progress=False)
    guard.calibrate([rows(50, seed=1).to(dtype)], progress=False)
    guard.save(tmp_path / "detector.safetensors")
    loaded = pnml.guard(model).load(tmp_path / "detector.safetensors")
    for one in (guard, loaded):
        result = one(rows(0).to(dtype))
        assert len(result) == 0
        assert result.logits.shape == result.probabilities.shape == (0, CLASSES)
        assert result.leverage_by_layer.shape == (0, 1 + len(guard.layers))
        assert result.is_ood is not None
        assert result.is_ood.dtype == torch.bool
        assert isinstance(result.regret, Tensor)
    assert torch.equal(loaded(rows(5).to(dtype)).regret, guard(rows(5).to(dtype)).regret), "the layers are found later"


def test_a_model_that_fails_on_no_samples_is_not_run() -> None:
    class Picky(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, x: Tensor) -> Tensor:
            if not len(x):
                raise RuntimeError("cannot work on nothing")
            logits: Tensor = self.inner(x)
            return logits

    guard = pnml.guard(Picky()).fit([rows(0), rows(50), rows(0)], progress=False)
    assert len(guard(rows(0))) == 0
    assert len(guard(x=rows(0))) == 0


def test_no_samples_of_several_labels_or_tokens() -> None:
    labels = pnml.guard(mlp(), task="multilabel").fit([rows(100)], progress=False)
    assert labels(rows(0)).regret.shape == (0, CLASSES)

    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.tags = nn.Embedding(50, 12), nn.Linear(12, CLASSES)

        def forward(self, tokens: Tensor) -> Tensor:
            logits: Tensor = self.tags(self.words(tokens).tanh())
            return logits

    tokens = torch.randint(0, 50, (40, 6), generator=torch.Generator().manual_seed(0))
    tags = pnml.guard(Tagger(), layers="last").fit([tokens], progress=False)
    assert tags(tokens[:0]).regret.shape == (0, 6)
    assert tags(tokens[:3])[1].regret.shape == (1, 6)


def test_missing_values_of_several_labels_are_flagged() -> None:
    guard = pnml.guard(mlp(), task="multilabel").fit([rows(100)], progress=False)
    guard.calibrate([rows(60, seed=1)], progress=False)
    x = rows(4, seed=2)
    x[1, 0] = math.nan
    result = guard(x)
    assert result.regret.isnan().any(dim=1).tolist() == [False, True, False, False]
    assert result.is_ood is not None
    assert bool(result.is_ood[1])
    with pytest.raises(ValueError, match="batch 0 of the loader: row 1 holds nan"):
        guard.calibrate([x], progress=False)


@pytest.mark.parametrize("model", [CNN(), vit()])
def test_a_sample_without_a_batch_says_what_to_pass(model: nn.Module) -> None:
    guard = calibrated(model.eval())
    with pytest.raises(ValueError, match=r"shape \(3, 8, 8\), without the axis of samples: pass x\[None\], of shape"):
        guard(images(1)[0])
    one = guard(images(1)[0][None])
    assert repr(one).startswith(f"Result(class {int(one.prediction)} with probability ")


def test_a_row_without_a_batch_says_what_to_pass() -> None:
    guard = pnml.guard(mlp()).fit([rows(50)], progress=False)
    with pytest.raises(ValueError, match=r"\(8,\), without the axis of samples: pass x\[None\], of shape \(1, 8\)"):
        guard(rows(1)[0])
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        guard(torch.zeros(2, 9))


def test_a_loaded_guard_asks_whether_it_got_one_sample(tmp_path: Path) -> None:
    model = mlp()
    pnml.guard(model).fit([rows(50)], progress=False).save(tmp_path / "d.safetensors")
    guard = pnml.guard(model).load(tmp_path / "d.safetensors")
    with pytest.raises(ValueError, match=r"an input of shape \(8,\): if that is one sample, pass x\[None\]"):
        guard(rows(1)[0])


@pytest.mark.parametrize(
    ("batch", "advice"),
    [
        ({"input": rows(4), "labels": torch.zeros(4)}, r"one dict: .* guard\(\*\*batch\)"),
        ((rows(4), torch.zeros(4)), r"one tuple: pass the model's inputs, guard\(batch\[0\]\)"),
        ([rows(4), torch.zeros(4)], r"one list: pass the model's inputs"),
        (
            Image.new("RGB", (4, 4)),
            r"a Image: pass a batch of tensors, each prepared as the images of the fit, guard\(x",
        ),
        (rows(4).numpy(), r"a ndarray: pass tensors, x = torch\.as_tensor\(numpy\.asarray\(x\), dtype="),
        (TensorDataset(rows(4)), r"a TensorDataset: pass the inputs of one batch after the other, for x, y in loader"),
    ],
)
def test_a_batch_of_a_loader_says_what_to_pass(batch: Any, advice: str) -> None:
    guard = pnml.guard(mlp()).fit([rows(50)], progress=False)
    with pytest.raises(ValueError, match=advice):
        guard(batch)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_missing_values_are_flagged_and_leave_the_others_alone(bad: float) -> None:
    guard = calibrated(CNN().eval())
    x = images(6, seed=2)
    expected = guard(x)
    x[2, 0, 3, 3] = bad
    result = guard(x)
    others = torch.tensor([0, 1, 3, 4, 5])
    assert result.regret.isnan().tolist() == [False, False, True, False, False, False]
    assert result.is_ood is not None
    assert result.p_value is not None
    assert expected.is_ood is not None
    assert bool(result.is_ood[2])
    assert float(result.p_value[2]) == pytest.approx(1 / 41)
    torch.testing.assert_close(result.regret[others], expected.regret[others])
    assert torch.equal(result.is_ood[others], expected.is_ood[others])
    assert len(result[result.is_ood]) == int(result.is_ood.sum())
    with pytest.raises(ValueError, match=r"batch 1 of the loader: row 2 holds"):
        guard.calibrate([images(6), x], progress=False)
