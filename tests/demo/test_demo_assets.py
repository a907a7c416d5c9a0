"""Test the packaged network, detector and images."""

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
from pnml.demo import assets
from pnml_bench import data, zoo
from pnml_bench.methods import View

if TYPE_CHECKING:
    from collections.abc import Callable

WEIGHTS = assets.FOLDER / assets.WEIGHTS


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a copy of the assets that is used instead of them."""
    folder = tmp_path / "assets"
    shutil.copytree(assets.FOLDER, folder)
    monkeypatch.setattr(assets, "FOLDER", folder)
    return folder


def test_manifest_contains_the_digest_of_every_file() -> None:
    listed = json.loads((assets.FOLDER / "manifest.json").read_text(encoding="utf-8"))["sha256"]
    files = {path.name: path.read_bytes() for path in assets.FOLDER.iterdir() if path.name != "manifest.json"}
    assert {name: hashlib.sha256(content).hexdigest() for name, content in files.items()} == listed
    assert set(listed) == set(assets.FILES)


def test_assets_are_small() -> None:
    assert sum((assets.FOLDER / name).stat().st_size for name in (assets.WEIGHTS, assets.DETECTOR)) < 2_000_000
    assert sum(path.stat().st_size for path in assets.FOLDER.iterdir()) < 3_000_000


def test_weights_are_float16_with_metadata_of_the_training() -> None:
    with safe_open(WEIGHTS, framework="pt") as file:
        dtypes = {file.get_tensor(name).dtype for name in file.keys()}  # noqa: SIM118 - no mapping
        metadata = file.metadata()
    assert dtypes == {torch.float16, torch.int64}  # int64 are the counters of batch norms
    assert json.loads(metadata["recipe"])["model"] == "resnet-20"
    assert metadata["dataset"] == "cifar10"
    assert (metadata["train_images"], metadata["test_images"]) == ("50000", "10000")
    assert metadata.keys() >= {"date", "seed", "epochs"}
    assert float(metadata["test_accuracy"]) > 91


def test_accuracy_on_the_sample_is_consistent_with_the_test_accuracy(result: demo.DemoResult) -> None:
    assert result.ind.prediction is not None
    right = int((result.ind.prediction == result.ind.labels).sum())
    expected = float(result.training["test_accuracy"]) / 100
    assert stats.binomtest(right, len(result.ind), expected).pvalue > 1e-4


def test_detector_was_fitted_with_the_network(result: demo.DemoResult) -> None:
    detector = pnml.Detector.load(assets.FOLDER / assets.DETECTOR)
    head = zoo.load(WEIGHTS).head
    assert np.array_equal(detector.weight, head.weight.detach().numpy())
    assert np.array_equal(detector.bias, head.bias.detach().numpy())
    assert detector.count == 50_000
    view = View(zoo.load(WEIGHTS), data.load("uniform", limit=4))
    assert detector.layer_names == tuple(str(layer) for layer in view.layers)  # those that a guard would choose now
    assert detector.threshold is not None
    assert detector.threshold.count == 10_000 - len(result.ind)  # without the sample
    assert detector.threshold.source == "held-out"
    assert stats.kstest(result.threshold.p_value(result.ind.regret), "uniform").pvalue > 1e-4


def test_sample_has_equal_numbers_of_each_class() -> None:
    images = assets.ind_images()
    assert images.labels is not None
    assert np.bincount(images.labels).tolist() == [40] * 10
    assert images.pixels.shape == (400, 32, 32, 3)
    assert len({image.tobytes() for image in images.pixels}) == 400


@pytest.mark.skipif("PNML_DATA" not in os.environ, reason="PNML_DATA is not set")
def test_images_equal_those_of_the_published_test_set() -> None:
    try:
        published = data.load("cifar10")
    except data.DataNotFoundError:
        pytest.skip("CIFAR-10 is not in PNML_DATA")
    images = assets.ind_images()
    assert published.labels is not None
    assert images.labels is not None
    rows = np.ravel(assets.manifest()["test_rows"])
    assert np.array_equal(images.pixels, published.images[rows])
    assert np.array_equal(images.labels, published.labels[rows])


def flip_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize("damage", [flip_bit, Path.unlink, lambda path: path.write_bytes(b"")])
@pytest.mark.parametrize("name", assets.FILES)
def test_damaged_file_raises(copy: Path, name: str, damage: Callable[[Path], object]) -> None:
    assert assets.verified_path(name) == copy / name
    damage(copy / name)
    with pytest.raises(ValueError, match=rf"{name} is missing or damaged: reinstall the package with pip install"):
        assets.verified_path(name)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{")])
def test_damaged_manifest_raises(copy: Path, damage: Callable[[Path], object]) -> None:
    damage(copy / "manifest.json")
    with pytest.raises(ValueError, match=r"manifest.json is missing or damaged"):
        assets.ind_images()
