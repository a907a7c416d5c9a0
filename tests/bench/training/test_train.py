"""Train small networks on the CPU."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from pnml_bench import zoo
from pnml_bench.training import Progress, Recipe, TrainingResult, train

from .small import outlier_set, same_weights, small_recipe, small_set

if TYPE_CHECKING:
    from pathlib import Path

    from pnml_bench.data import ImageSet


@pytest.fixture(scope="module")
def reports() -> list[Progress]:
    return []


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, reports: list[Progress]) -> TrainingResult:
    """Train for 11 epochs: the network is tested after the tenth and at the end."""
    out = tmp_path_factory.mktemp("trained") / "deeper" / "net.safetensors"
    plan = small_recipe(epochs=11)
    return train(plan, small_set(64, 0), small_set(40, 1), out=out, device="cpu", report=reports.append)


def metadata(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        found: dict[str, str] = file.metadata()
    return found


def test_training_lowers_loss_and_raises_accuracy(trained: TrainingResult, reports: list[Progress]) -> None:
    epochs = [now for now in reports if now.step == now.steps]
    assert [now.epoch for now in epochs] == list(range(1, 12))
    assert epochs[-1].loss < 0.5 * epochs[0].loss
    assert epochs[-1].train_accuracy > 80
    assert trained.test_accuracy > 80


def test_checkpoint_has_metadata(trained: TrainingResult) -> None:
    found = metadata(trained.path)
    assert float(found["test_accuracy"]) == trained.test_accuracy
    assert found["name"] == "resnet-20_cifar10"
    assert (found["dataset"], found["epochs"], found["seed"]) == ("cifar10", "11", "0")
    assert (found["train_images"], found["test_images"], found["outliers"]) == ("64", "40", "none")
    assert json.loads(found["recipe"])["batch_size"] == 16
    assert date.fromisoformat(found["date"]) <= datetime.now(timezone.utc).date()
    assert (found["architecture"], found["device"], found["torch"]) == ("resnet-20", "cpu", torch.__version__)
    assert list(trained.path.parent.iterdir()) == [trained.path]


def test_checkpoint_of_another_training_is_not_overwritten(trained: TrainingResult) -> None:
    with pytest.raises(ValueError, match=r"from another training .*seed is 0 there, 1 here.*choose another out"):
        train(small_recipe(epochs=11), small_set(64, 0), small_set(40, 1), out=trained.path, seed=1)


def test_weights_depend_on_seed_only(tmp_path: Path) -> None:
    plan = small_recipe("wideresnet-40-2", epochs=1)  # it has dropout
    state = torch.get_rng_state()
    runs = []
    for number, seed in enumerate((3, 3, 4)):
        torch.rand(number)
        before = torch.get_rng_state()
        out = tmp_path / f"{number}.safetensors"
        runs.append(train(plan, small_set(32, 0), small_set(8, 1), out=out, device="cpu", seed=seed).network)
        assert (torch.get_rng_state() == before).all()
    torch.set_rng_state(state)
    assert same_weights(runs[0], runs[1])
    assert not same_weights(runs[0], runs[2])


def test_infinite_loss_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"after epoch 1: lower the learning rate lr=1e\+30"):
        train(small_recipe(lr=1e30), small_set(64, 0), small_set(8, 1), out=tmp_path / "a.safetensors", device="cpu")
    assert not list(tmp_path.iterdir())


def tune(trained: TrainingResult, method: str, epochs: int, folder: Path) -> TrainingResult:
    return train(
        small_recipe(tune=method, epochs=epochs, lr=0.01),
        small_set(64, 0),
        small_set(40, 1),
        out=folder / "tuned.safetensors",
        start=trained.network,
        outliers=[outlier_set()],
        device="cpu",
    )


def energies(network: zoo.Network, images: ImageSet) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([-network(network.normalise(batch)).logsumexp(dim=1) for batch in images.batches(64)])


def test_energy_tuning_separates_energies(trained: TrainingResult, tmp_path: Path) -> None:
    kept = {name: tensor.clone() for name, tensor in trained.network.state_dict().items()}
    tuned = tune(trained, "energy", 6, tmp_path)
    inliers, unseen = small_set(40, 1), replace(outlier_set(96), images=outlier_set(96).images[48:])
    before, after = (
        energies(network, unseen).mean() - energies(network, inliers).mean()
        for network in (trained.network, tuned.network)
    )
    assert after > before + 3
    assert tuned.test_accuracy > 80
    assert (trained.accuracy_before, tuned.accuracy_before) == (None, trained.test_accuracy)
    assert metadata(tuned.path)["outliers"] == "outliers (48 images)"
    assert metadata(tuned.path)["name"] == "resnet-20-energy_cifar10"
    assert all(bool((tensor == kept[name]).all()) for name, tensor in trained.network.state_dict().items())


def test_oecc_tuning_lowers_confidence_on_outliers(trained: TrainingResult, tmp_path: Path) -> None:
    tuned = tune(trained, "oecc", 12, tmp_path)
    with torch.no_grad():
        confidence = [
            float(network(network.normalise(next(outlier_set().batches(48)))).softmax(dim=1).amax(dim=1).mean())
            for network in (trained.network, tuned.network)
        ]
    assert confidence[1] < confidence[0] - 0.3
    assert tuned.test_accuracy > 80


UNLABELLED = outlier_set()
LABELLED = small_set(8, 0)


@pytest.mark.parametrize(
    ("plan", "arguments", "message"),
    [
        (small_recipe(), {"out": "a.pt"}, r"to be a \.safetensors file, got a\.pt"),
        (small_recipe(), {"seed": -1}, "seed to be at least 0, got -1"),
        (small_recipe(), {"train_set": UNLABELLED}, "'outliers'.* without labels"),
        (small_recipe(), {"train_set": replace(LABELLED, labels=np.arange(20, 28))}, "from 0 to 9, got 20 to 27"),
        (small_recipe(), {"outliers": ["transformed"]}, "expected no outliers"),
        (small_recipe(tune="energy"), {"outliers": ["rooms"]}, "or 'transformed', got 'rooms'"),
        (small_recipe(tune="energy"), {"outliers": ["transformed"]}, "energy tuning needs start="),
        (small_recipe(tune="oecc"), {"start": zoo.create("resnet-20", 10)}, "oecc tuning needs"),
        (small_recipe(), {"start": zoo.create("resnet-20", 7)}, "10 classes, as in the recipe, got a resnet-20 with 7"),
    ],
)
def test_invalid_arguments_raise(plan: Recipe, arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "train_set": LABELLED,
        "test_set": LABELLED,
        "out": tmp_path / "a.safetensors",
        "device": "cpu",
    }
    with pytest.raises(ValueError, match=message):
        train(plan, **(given | arguments))
