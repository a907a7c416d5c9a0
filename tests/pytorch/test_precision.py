"""Another precision than that of the fit is refused or said; a fit in the precision that is served detects."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn

import pnml
from pnml import metrics
from pnml.pytorch.guard import PrecisionWarning

from .networks import CNN, images, mlp, rows

if TYPE_CHECKING:
    from contextlib import AbstractContextManager


@pytest.fixture(scope="module")
def digits() -> tuple[nn.Module, dict[str, Tensor]]:
    """A network that knows the digits 0 to 4, and images."""
    torch.manual_seed(0)
    bunch = load_digits()
    pictures, labels = torch.tensor(bunch.data / 16, dtype=torch.float32), torch.tensor(bunch.target)
    known = (labels < 5).nonzero()[:, 0]
    known = known[torch.randperm(len(known))]
    train = known[:500]
    model = nn.Sequential(
        nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Dropout(0.2), nn.Linear(128, 5)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for _ in range(200):
        batch = train[torch.randint(len(train), (128,))]
        optimizer.zero_grad()
        torch.autograd.backward(nn.functional.cross_entropy(model(pictures[batch]), labels[batch]))
        optimizer.step()
    sets = {"train": train, "held out": known[500:700], "fresh": known[700:], "unknown": (labels >= 5).nonzero()[:, 0]}
    return model.eval(), {name: pictures[numbers] for name, numbers in sets.items()}


def served(dtype: torch.dtype, how: str) -> AbstractContextManager[Any]:
    return torch.autocast("cpu", dtype=dtype) if how == "autocast" else nullcontext()


@pytest.mark.parametrize("how", ["converted", "autocast"])
def test_a_fit_in_half_precision_detects_as_one_in_full(how: str, digits: tuple[nn.Module, dict[str, Tensor]]) -> None:
    model, sets = digits
    aurocs, rates = [], []
    for dtype in (torch.float32, torch.bfloat16):
        other, data = copy.deepcopy(model), sets
        if how == "converted":
            other, data = other.to(dtype), {name: x.to(dtype) for name, x in sets.items()}
        with served(dtype, how) if dtype == torch.bfloat16 else nullcontext():
            guard = pnml.guard(other).fit([*torch.split(data["train"], 100)], progress=False)
            guard.calibrate([data["held out"]], progress=False)
            fresh, unknown = guard(data["fresh"]), guard(data["unknown"])
        reading: Any = guard.fitted().reading
        assert reading["dtype"] == str(dtype).removeprefix("torch.")
        aurocs.append(metrics.auroc(fresh.regret.float().numpy(), unknown.regret.float().numpy()))
        rates.append(float(fresh.is_ood.float().mean()))
    assert aurocs[0] > 90
    assert aurocs[1] > aurocs[0] - 3
    assert max(rates) < 0.15


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_coarser_precision_is_refused_by_name(dtype: torch.dtype) -> None:
    model = CNN()
    guard = pnml.guard(model).fit([images(40)], progress=False)
    name = str(dtype).removeprefix("torch.")
    said = rf"embeddings are {name}, and the guard was fitted on float32.*model\.to\(torch\.{name}\)"
    with torch.autocast("cpu", dtype=dtype):
        with pytest.raises(ValueError, match=said):
            guard(images(4))
        with pytest.raises(ValueError, match=f"batch 0 of the loader: the {said}"):
            guard.calibrate([images(4)], progress=False)
    assert bool(guard(images(4)).regret.isfinite().all()), "and nothing is lost"


def test_a_finer_precision_is_said_once() -> None:
    guard = pnml.guard(mlp())
    with torch.autocast("cpu", dtype=torch.bfloat16):
        guard.fit([rows(40)], progress=False)
    with pytest.warns(PrecisionWarning, match=r"are float32, and .* fitted on bfloat16"):
        guard(rows(4))
    guard(rows(4))  # a second warning would be an error


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_a_model_in_any_precision_keeps_its_logits(dtype: torch.dtype) -> None:
    model = CNN().eval().to(dtype)
    guard = pnml.guard(model).fit([images(60).to(dtype)], progress=False)
    result = guard(images(5, seed=1).to(dtype))
    with torch.no_grad():
        assert torch.equal(result.logits, model(images(5, seed=1).to(dtype)))
    assert bool(result.regret.isfinite().all())
