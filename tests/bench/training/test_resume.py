"""An interrupted training, when resumed, must end like an uninterrupted one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors import safe_open

from pnml_bench.training import Progress, TrainingResult, train

from .small import outlier_set, same_weights, small_recipe, small_set

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

STEPS = 3


class Interrupted(Exception):  # noqa: N818 (an event, not an error)
    pass


def stop_at(epoch: int, step: int) -> Callable[[Progress], None]:
    def report(now: Progress) -> None:
        if (now.epoch, now.step) == (epoch, step):
            raise Interrupted

    return report


def run(out: Path, model: str = "resnet-20", device: str = "cpu", **more: Any) -> TrainingResult:
    plan = small_recipe(model, tune="oecc" if "outliers" in more else None)
    return train(plan, small_set(16 * STEPS + 5, 0), small_set(20, 1), out=out, device=device, **more)


def metadata_without_date(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        metadata: dict[str, str] = file.metadata()
    return {key: value for key, value in metadata.items() if key != "date"}


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    return run(tmp_path_factory.mktemp("uninterrupted") / "net.safetensors", save_every=0.0)


@pytest.mark.parametrize(
    ("stops", "first_epoch"),
    [
        ([(1, 0)], 1),
        ([(1, 2)], 1),
        ([(1, STEPS)], 2),
        ([(2, 1)], 2),
        ([(3, STEPS)], 3),
        ([(1, 1), (2, 2), (3, 1)], 3),
    ],
)
def test_interrupted_training_ends_with_same_weights(
    stops: list[tuple[int, int]], first_epoch: int, uninterrupted: TrainingResult, tmp_path: Path
) -> None:
    out = tmp_path / "net.safetensors"
    for stop in stops:
        with pytest.raises(Interrupted):
            run(out, save_every=0.0, report=stop_at(*stop))
        assert not out.exists()
    reports: list[Progress] = []
    resumed = run(out, save_every=0.0, report=reports.append)
    assert reports[0].epoch == first_epoch
    assert same_weights(resumed.network, uninterrupted.network)
    assert metadata_without_date(out) == metadata_without_date(uninterrupted.path)
    assert [path.name for path in tmp_path.iterdir()] == ["net.safetensors"]


@pytest.mark.parametrize("model", ["wideresnet-40-2", "resnet-20"])
def test_dropout_and_outliers_are_resumed(model: str, uninterrupted: TrainingResult, tmp_path: Path) -> None:
    more: dict[str, Any] = {"model": model, "save_every": 0.0}
    if model == "resnet-20":
        more |= {"start": uninterrupted.network, "outliers": [outlier_set(), "transformed"]}
    expected = run(tmp_path / "expected.safetensors", **more)
    with pytest.raises(Interrupted):
        run(tmp_path / "net.safetensors", **more, report=stop_at(2, STEPS))
    assert same_weights(run(tmp_path / "net.safetensors", **more).network, expected.network)


def test_resuming_with_other_settings_raises(tmp_path: Path) -> None:
    out = tmp_path / "net.safetensors"
    with pytest.raises(Interrupted):
        run(out, save_every=0.0, report=stop_at(2, 1))
    with pytest.raises(
        ValueError, match=r"net\.partial\.safetensors is from another training \(seed is 0 there, 5 here"
    ):
        run(out, seed=5)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # of PyTorch's own compiler
def test_gpu_training_resumes(tmp_path: Path) -> None:
    expected = run(tmp_path / "expected.safetensors", device="cuda")
    with pytest.raises(Interrupted):
        run(tmp_path / "net.safetensors", device="cuda", save_every=0.0, report=stop_at(2, STEPS))
    assert same_weights(run(tmp_path / "net.safetensors", device="cuda").network, expected.network)


def test_a_training_with_adamw_is_resumed(tmp_path: Path) -> None:
    plan = replace(small_recipe(lr=0.001), optimizer="adamw", weight_decay=0.05)
    sets = small_set(16 * STEPS, 0), small_set(20, 1)
    whole = train(plan, *sets, out=tmp_path / "whole.safetensors", device="cpu")
    out = tmp_path / "net.safetensors"
    with pytest.raises(Interrupted):
        train(plan, *sets, out=out, device="cpu", save_every=0.0, report=stop_at(2, 1))
    resumed = train(plan, *sets, out=out, device="cpu")
    assert same_weights(whole.network, resumed.network)
    sgd = train(small_recipe(lr=0.001), *sets, out=tmp_path / "sgd.safetensors", device="cpu")
    assert not same_weights(whole.network, sgd.network)
