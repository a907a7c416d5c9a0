"""The packaged network, detector and images: whole, small, and fitting together."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from safetensors import safe_open
from scipy import stats

import pnml
from pnml import demo
from pnml.bench import data, zoo
from pnml.demo import assets

if TYPE_CHECKING:
    from collections.abc import Callable

WEIGHTS = assets.FOLDER / assets.WEIGHTS


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the files, in use instead of them."""
    folder = tmp_path / "assets"
    shutil.copytree(assets.FOLDER, folder)
    monkeypatch.setattr(assets, "FOLDER", folder)
    return folder


def test_every_file_has_its_digest_in_the_manifest() -> None:
    listed = json.loads((assets.FOLDER / "manifest.json").read_text(encoding="utf-8"))["sha256"]
    there = {path.name: path.read_bytes() for path in assets.FOLDER.iterdir() if path.name != "manifest.json"}
    assert {name: hashlib.sha256(held).hexdigest() for name, held in there.items()} == listed
    assert set(listed) == set(assets.FILES)


def test_network_and_detector_take_less_than_two_megabytes() -> None:
    assert sum((assets.FOLDER / name).stat().st_size for name in (assets.WEIGHTS, assets.DETECTOR)) < 2_000_000
    assert sum(path.stat().st_size for path in assets.FOLDER.iterdir()) < 3_000_000


def test_weights_are_float16_and_say_how_they_were_trained() -> None:
    with safe_open(WEIGHTS, framework="pt") as file:
        kinds = {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118 - no mapping
        about = file.metadata()
    assert kinds == {torch.float16, torch.int64}, "int64 are the counters of batch norms"
    assert json.loads(about["recipe"])["model"] == "resnet-20"
    assert about["dataset"] == "cifar10"
    assert (about["train_images"], about["test_images"]) == ("50000", "10000")
    assert about.keys() >= {"date", "seed", "epochs"}
    assert float(about["test_accuracy"]) > 91


def test_accuracy_on_the_sample_is_what_the_test_accuracy_makes_plausible(outcome: demo.Outcome) -> None:
    known = outcome.known
    right = int((known.prediction == known.pictures.labels).sum())
    expected = float(outcome.training["test_accuracy"]) / 100
    assert stats.binomtest(right, len(known.prediction), expected).pvalue > 1e-4


def test_the_detector_belongs_to_the_network(outcome: demo.Outcome) -> None:
    detector = pnml.Detector.load(assets.FOLDER / assets.DETECTOR)
    head = zoo.load(WEIGHTS).head
    assert np.array_equal(detector.weight, head.weight.detach().numpy())
    assert np.array_equal(detector.bias, head.bias.detach().numpy())
    assert detector.correlation.count == 50_000
    assert detector.threshold is not None
    assert detector.threshold.count == 10_000 - len(outcome.known.regret), "the sample is not among them"
    assert detector.threshold.source == "held-out"
    assert stats.kstest(outcome.known.p_value, "uniform").pvalue > 1e-4, "fitted with these very weights"


def test_as_many_images_of_each_class() -> None:
    known = assets.known_pictures()
    assert known.labels is not None
    assert np.bincount(known.labels).tolist() == [40] * 10
    assert known.images.shape == (400, 32, 32, 3)
    assert len({image.tobytes() for image in known.images}) == 400


@pytest.mark.skipif("PNML_DATA" not in os.environ, reason="PNML_DATA names no folder with CIFAR-10")
def test_images_are_those_of_the_published_test_set() -> None:
    try:
        published = data.load("cifar10")
    except data.DataNotFoundError:
        pytest.skip("CIFAR-10 is not in PNML_DATA")
    known = assets.known_pictures()
    assert published.labels is not None
    assert known.labels is not None
    rows = np.ravel(assets.manifest()["test_rows"])
    assert np.array_equal(known.images, published.images[rows])
    assert np.array_equal(known.labels, published.labels[rows])


def spoil(path: Path) -> None:
    held = bytearray(path.read_bytes())
    held[len(held) // 2] ^= 1
    path.write_bytes(held)


@pytest.mark.parametrize("harm", [spoil, Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("name", assets.FILES)
def test_a_damaged_file_is_refused(copy: Path, name: str, harm: Callable[[Path], object]) -> None:
    assert assets.checked(name) == copy / name
    harm(copy / name)
    with pytest.raises(ValueError, match=rf"{name} is damaged or absent: install the package again, pip install"):
        assets.checked(name)


@pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_text("{")])
def test_a_damaged_manifest_is_refused(copy: Path, harm: Callable[[Path], object]) -> None:
    harm(copy / "manifest.json")
    with pytest.raises(ValueError, match=r"manifest.json is damaged or absent"):
        assets.known_pictures()
