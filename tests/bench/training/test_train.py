"""Whole trainings of small networks on the CPU."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from datetime import date, datetime, timezone
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors import safe_open

from pnml.bench import zoo
from pnml.bench.training import Progress, Recipe, TrainedResult, log_epochs, train
from pnml.bench.training.measure import accuracy, to_labelled

from .small import same_weights, small_recipe, small_set, strangers

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.bench.data import ImageSet


@pytest.fixture(scope="module")
def told() -> list[Progress]:
    return []


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory, told: list[Progress]) -> TrainedResult:
    """Enough epochs for one test in between."""
    out = tmp_path_factory.mktemp("trained") / "deeper" / "net.safetensors"
    plan = small_recipe(epochs=11)
    return train(plan, small_set(64, 0), small_set(40, 1), out=out, device="cpu", report=told.append)


def metadata(path: Path) -> dict[str, str]:
    with safe_open(path, framework="pt") as file:
        found: dict[str, str] = file.metadata()
    return found


def test_it_learns(trained: TrainedResult, told: list[Progress]) -> None:
    passes = [now for now in told if now.step == now.steps]
    assert [now.epoch for now in passes] == list(range(1, 12))
    assert passes[-1].loss < 0.5 * passes[0].loss
    assert passes[-1].train_accuracy > 80
    assert trained.test_accuracy > 80


def test_it_tells_where_it_stands(trained: TrainedResult, told: list[Progress]) -> None:
    assert [(now.epoch, now.step) for now in told] == [(1, 0), *((e, s) for e in range(1, 12) for s in range(1, 5))]
    assert {now.steps for now in told} == {4}
    assert math.isnan(told[0].loss)
    assert math.isnan(told[9 * 4].test_accuracy)
    assert 0 <= told[10 * 4].test_accuracy <= 100
    assert told[-1].seconds_left == 0


def test_the_checkpoint_says_what_it_is(trained: TrainedResult) -> None:
    said = metadata(trained.path)
    assert float(said["test_accuracy"]) == trained.test_accuracy
    assert said["name"] == "resnet-20_cifar10"
    assert (said["dataset"], said["epochs"], said["seed"]) == ("cifar10", "11", "0")
    assert (said["train_images"], said["test_images"], said["outliers"]) == ("64", "40", "none")
    assert json.loads(said["recipe"])["batch_size"] == 16
    assert date.fromisoformat(said["date"]) <= datetime.now(timezone.utc).date()
    assert (said["architecture"], said["device"], said["torch"]) == ("resnet-20", "cpu", torch.__version__)
    assert list(trained.path.parent.iterdir()) == [trained.path]


def test_the_checkpoint_has_the_accuracy_it_says(trained: TrainedResult) -> None:
    loaded, tests = zoo.load(trained.path), small_set(40, 1)
    assert same_weights(loaded, trained.network)
    right = 0
    with torch.no_grad():
        for images, label in zip(tests.batches(1), tests.labels if tests.labels is not None else (), strict=True):
            right += int(loaded(loaded.normalise(images)).argmax()) == label
    assert 100 * right / 40 == trained.test_accuracy


def test_a_finished_training_is_not_repeated(trained: TrainedResult) -> None:
    leftover = trained.path.with_name("net.partial.safetensors")
    leftover.touch()
    told: list[Progress] = []
    again = train(small_recipe(epochs=11), small_set(64, 0), small_set(40, 1), out=trained.path, report=told.append)
    assert same_weights(again.network, trained.network)
    assert (again.test_accuracy, again.path, told) == (trained.test_accuracy, trained.path, [])
    assert not leftover.exists()


def test_another_training_does_not_overwrite_it(trained: TrainedResult) -> None:
    with pytest.raises(ValueError, match=r"from another training .*seed is 0 there, 1 here.*choose another out"):
        train(small_recipe(epochs=11), small_set(64, 0), small_set(40, 1), out=trained.path, seed=1)


def test_the_seed_decides(tmp_path: Path) -> None:
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


def test_sets_smaller_than_a_batch_make_one_batch(tmp_path: Path) -> None:
    told: list[Progress] = []
    train(small_recipe(epochs=1), small_set(5, 0), small_set(3, 1), out=tmp_path / "a.safetensors", report=told.append)
    assert told[-1].steps == 1


def test_a_loss_that_explodes(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"after epoch 1: lr=1e\+30 is too high"):
        train(small_recipe(lr=1e30), small_set(64, 0), small_set(8, 1), out=tmp_path / "a.safetensors", device="cpu")
    assert not list(tmp_path.iterdir())


def energies(network: zoo.Network, images: ImageSet) -> torch.Tensor:
    with torch.no_grad():
        return torch.cat([-network(network.normalise(batch)).logsumexp(dim=1) for batch in images.batches(64)])


def test_energy_tuning_moves_energies_apart(trained: TrainedResult, tmp_path: Path) -> None:
    plan = small_recipe(tune="energy", epochs=6, lr=0.01)
    kept = {name: tensor.clone() for name, tensor in trained.network.state_dict().items()}
    tuned = train(
        plan,
        small_set(64, 0),
        small_set(40, 1),
        out=tmp_path / "tuned.safetensors",
        start=trained.network,
        outliers=[strangers()],
        device="cpu",
    )
    insiders, unseen = small_set(40, 1), replace(strangers(96), images=strangers(96).images[48:])
    before, after = (
        energies(network, unseen).mean() - energies(network, insiders).mean()
        for network in (trained.network, tuned.network)
    )
    assert after > before + 3
    assert tuned.test_accuracy > 80
    assert metadata(tuned.path)["outliers"] == "strangers (48 images)"
    assert metadata(tuned.path)["name"] == "resnet-20-energy_cifar10"
    assert all(bool((tensor == kept[name]).all()) for name, tensor in trained.network.state_dict().items())


def test_oecc_tuning_flattens_answers_on_outliers(trained: TrainedResult, tmp_path: Path) -> None:
    tuned = train(
        small_recipe(tune="oecc", epochs=12, lr=0.01),
        small_set(64, 0),
        small_set(40, 1),
        out=tmp_path / "tuned.safetensors",
        start=trained.network,
        outliers=[strangers()],
        device="cpu",
    )
    with torch.no_grad():
        sure = [
            float(network(network.normalise(next(strangers().batches(48)))).softmax(dim=1).amax(dim=1).mean())
            for network in (trained.network, tuned.network)
        ]
    assert sure[1] < sure[0] - 0.3
    assert tuned.test_accuracy > 80


def test_accuracy_counts(trained: TrainedResult) -> None:
    data = to_labelled(small_set(40, 1), 10, torch.device("cpu"))
    network = zoo.load(trained.path)
    right = accuracy(network, data)
    wrong_labels = data._replace(labels=(data.labels + 1) % 10)
    predicted = network(network.normalise(data.images.permute(0, 3, 1, 2))).argmax(dim=1)
    assert accuracy(network, wrong_labels) == 100 * float((predicted == wrong_labels.labels).double().mean())
    assert right == trained.test_accuracy


def test_log_lines(capsys: pytest.CaptureFixture[str]) -> None:
    for step in (0, 1, 4):
        log_epochs(Progress(1, 2, step, 4, *((0.25, 90.0, 88.5, 61.0) if step == 4 else ())))
    assert capsys.readouterr().err == (
        "epoch 1/2: begins\nepoch 1/2: loss 0.250, train 90.0 %, test 88.50 %, 0:01:01 left\n"
    )


UNLABELLED = strangers()
LABELLED = small_set(8, 0)


@pytest.mark.parametrize(
    ("plan", "arguments", "message"),
    [
        (small_recipe(), {"out": "a.pt"}, r"must be a \.safetensors file, got a\.pt"),
        (small_recipe(), {"seed": -1}, "seed must be at least 0, got -1"),
        (small_recipe(), {"train_set": UNLABELLED}, "'strangers'.* has none"),
        (small_recipe(), {"train_set": replace(LABELLED, labels=np.arange(20, 28))}, "0 to 9 is expected"),
        (small_recipe(), {"outliers": ["transformed"]}, "uses no outliers"),
        (small_recipe(tune="energy"), {"outliers": ["rooms"]}, "or 'transformed', got 'rooms'"),
        (small_recipe(tune="energy"), {"outliers": ["transformed"]}, "energy tuning needs a trained network"),
        (small_recipe(tune="oecc"), {"start": zoo.create("resnet-20", 10)}, "oecc tuning needs"),
        (small_recipe(), {"start": zoo.create("resnet-20", 7)}, "10 classes, but .* a resnet-20 with 7"),
    ],
)
def test_arguments_that_do_not_fit(plan: Recipe, arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    given: dict[str, Any] = {
        "train_set": LABELLED,
        "test_set": LABELLED,
        "out": tmp_path / "a.safetensors",
        "device": "cpu",
    }
    with pytest.raises(ValueError, match=message):
        train(plan, **(given | arguments))
