"""Guards calibrated by predicted class or on their training set, and the graphs that are exported from them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor

import pnml
from pnml.core.calibration_scores import TrainingRowsWarning
from pnml.pytorch.export import GuardGraph

from .networks import loader, mlp, rows

if TYPE_CHECKING:
    from pathlib import Path

RATE = 0.1

pytestmark = pytest.mark.filterwarnings("ignore::pnml.core.calibration.PooledClassesWarning")


def calibrated() -> tuple[pnml.Guard, Tensor]:
    """Give a guard calibrated by predicted class, and what it was calibrated on; some classes have too few samples."""
    guard = pnml.guard(mlp()).fit(loader(rows(300)), progress=False).eval()
    held_out = rows(150, seed=1)
    guard.calibrate([held_out], by="prediction", false_alarm_rate=RATE, progress=False)
    return guard, held_out


def expected(guard: pnml.Guard, held_out: Tensor, fresh: Tensor) -> tuple[list[bool], list[float]]:
    """Decide about every sample by counting among the calibration samples of its class, or of all."""
    held, new = guard(held_out), guard(fresh)
    decisions, p_values = [], []
    for regret, number in zip(new.regret.tolist(), new.prediction.tolist(), strict=True):
        mine = held.regret[held.prediction == number]
        mine = (mine if len(mine) >= 9 else held.regret).tolist()
        p_values.append((1 + sum(other >= regret for other in mine)) / (1 + len(mine)))
        decisions.append(p_values[-1] <= RATE + 1e-9)
    return decisions, p_values


def test_decisions_are_those_of_each_class(tmp_path: Path) -> None:
    guard, held_out = calibrated()
    fresh = 1.5 * rows(200, seed=2)
    decisions, p_values = expected(guard, held_out, fresh)
    assert 0 < sum(decisions) < 200
    threshold = guard.fitted().threshold
    assert threshold is not None
    assert {one.is_own for one in threshold.classes} == {True, False}
    guard.save(tmp_path / "detector.safetensors")
    for one in (guard, pnml.guard(guard.model).load(tmp_path / "detector.safetensors")):
        result = one(fresh)
        assert result.is_ood.tolist() == decisions
        torch.testing.assert_close(result.p_value, torch.tensor(p_values))


def test_graph_decides_as_the_guard() -> None:
    guard, _ = calibrated()
    fresh = 1.5 * rows(200, seed=2)
    result = guard(fresh)
    with guard.evaluating():
        _, _, regret, p_value, is_ood = GuardGraph(guard)(fresh)
    check_agreement(guard, result, regret.numpy(), p_value.numpy(), is_ood.numpy())


@pytest.mark.slow
def test_onnx_graph_decides_as_the_guard(tmp_path: Path) -> None:
    guard, _ = calibrated()
    path = pnml.export_onnx(guard, rows(4), tmp_path / "guarded.onnx")
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    fresh = 1.5 * rows(200, seed=2)
    names = [output.name for output in session.get_outputs()]
    found = dict(zip(names, session.run(None, {"input": fresh.numpy()}), strict=True))
    check_agreement(guard, guard(fresh), found["regret"], found["p_value"], found["is_ood"])
    fresh[3, 2] = math.nan
    broken = dict(zip(names, session.run(None, {"input": fresh.numpy()}), strict=True))
    assert np.isnan(broken["regret"][3])
    assert broken["is_ood"][3]


def check_agreement(guard: pnml.Guard, result: pnml.Result, regret: Any, p_value: Any, is_ood: Any) -> None:
    """The regrets agree up to rounding, and so do p-values and decisions of the classes' own thresholds."""
    threshold, atol = guard.fitted().threshold, 1e-5
    assert threshold is not None
    mine, classes = np.asarray(result.regret, np.float64), np.asarray(result.prediction)
    np.testing.assert_allclose(regret, mine, rtol=0, atol=atol)
    assert (p_value >= threshold.p_value(mine + atol, classes) - 1e-6).all()
    assert (p_value <= threshold.p_value(mine - atol, classes) + 1e-6).all()
    clear = np.abs(mine - np.array([one.value for one in threshold.classes])[classes]) > atol
    assert clear.mean() > 0.9
    np.testing.assert_array_equal(is_ood[clear], np.asarray(result.is_ood)[clear])


@pytest.mark.parametrize("shuffled", [True, False])
def test_training_set_is_recognised_in_other_batches(shuffled: bool) -> None:  # noqa: FBT001
    train = rows(300)
    guard = pnml.guard(mlp().double()).fit(loader(train.double()), progress=False)
    order = torch.randperm(300, generator=torch.Generator().manual_seed(0)) if shuffled else torch.arange(300)
    with pytest.warns(TrainingRowsWarning, match=r"^300 of 300 calibration samples were recognised"):
        threshold = guard.calibrate(loader(train[order].double(), 60), progress=False)
    assert threshold.source == "not held-out"
    assert guard.calibrate([train.double()], leave_one_out=True, progress=False).source == "leave-one-out"
    assert guard.calibrate([rows(300, seed=1).double()], progress=False).source == "held-out"
