from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

from pnml_bench.data import SETS, DataNotFoundError, load

from .layouts import make_cifar10, make_svhn, make_tiny_imagenet, random_images

if TYPE_CHECKING:
    from pathlib import Path

STORED = {
    "cifar10": "cifar-10-batches-py",
    "cifar100": "cifar-100-python",
    "svhn": "svhn",
    "tinyimagenet_crop": "Imagenet",
    "tinyimagenet_resize": "Imagenet_resize",
    "lsun_crop": "LSUN",
    "lsun_resize": "LSUN_resize",
    "isun": "iSUN",
    "imagenet30": "imagenet30",
}
TRAINABLE = ["cifar10", "cifar100", "svhn", "imagenet30"]


def test_sets_are_those_of_the_paper_and_of_openood() -> None:
    others = {"uniform", "gaussian", "tinyimagenet", "mnist", "textures", "places365"}
    assert set(SETS) == {*STORED, "tinyimagenet_resize_nearest"} | others


@pytest.mark.parametrize("name", STORED)
def test_load_reads_every_layout(name: str, data_folder: Path) -> None:
    found = load(name)
    assert found.images.shape[1:] == ((254, 254, 3) if name == "imagenet30" else (32, 32, 3))
    assert len(found) == (36 if name == "imagenet30" else 12)
    assert (found.labels is None) == (name not in TRAINABLE)
    assert found.note == f"{len(found)} of the {SETS[name].counts['test']:,} published images"
    assert load(name, size=20, limit=5).images.shape == (5, 20, 20, 3)
    if name in TRAINABLE:
        assert load(name, split="train").labels is not None


@pytest.mark.parametrize("name", STORED)
def test_missing_set_raises_with_expected_paths(name: str, cache: Path) -> None:
    with pytest.raises(DataNotFoundError) as caught:
        load(name)
    message = str(caught.value)
    assert caught.value.name == name
    assert pickle.loads(pickle.dumps(caught.value)).name == name  # noqa: S301 (pickled here)
    assert f"expected {STORED[name]}" in message
    assert f" in {cache / 'data'}. Get it: " in message
    assert ("drive.google.com" if name == "imagenet30" else f"pnml data fetch {name}") in message
    assert isinstance(caught.value, FileNotFoundError)


def test_data_folders_are_searched_in_order(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_cifar10(cache / "data", 5)
    make_cifar10(tmp_path / "a", 6)
    make_svhn(tmp_path / "b", 7)
    make_cifar10(tmp_path / "b", 8)
    (tmp_path / "a" / "cifar-10-batches-py" / "data_batch_5").unlink()
    assert len(load("cifar10")) == 5
    monkeypatch.setenv("PNML_DATA", f"{tmp_path / 'a'}{os.pathsep}{tmp_path / 'b'}")
    assert len(load("cifar10")) == 6
    assert len(load("cifar10", split="train")) == 40
    assert len(load("svhn")) == 7
    assert len(load("cifar10", root=tmp_path / "b")) == 8
    with pytest.raises(DataNotFoundError, match="was not found: expected svhn"):
        load("svhn", root=tmp_path / "a")


@pytest.mark.parametrize("name", ["tinyimagenet_crop", "lsun_crop"])
def test_odin_crops_are_the_central_32_pixels(name: str, data_folder: Path) -> None:
    seed = {"tinyimagenet_crop": 40, "lsun_crop": 42}[name]
    assert np.array_equal(np.asarray(load(name).images), random_images(12, 36, seed)[:, 2:34, 2:34])


def test_tinyimagenet_crops_are_seeded_windows(tmp_path: Path) -> None:
    make_tiny_imagenet(tmp_path, 40)
    found = load("tinyimagenet_crop", root=tmp_path)
    corners = []
    for path, crop in zip(sorted(tmp_path.rglob("*.JPEG")), np.asarray(found.images), strict=True):
        whole = np.asarray(Image.open(path).convert("RGB"))
        positions = np.ndindex(33, 33)
        corners.append(next((y, x) for y, x in positions if np.array_equal(whole[y : y + 32, x : x + 32], crop)))
    assert len(set(corners)) > 30
    assert np.ptp(corners, axis=0).min() > 20
    assert "seed 0" in found.note
    assert "2017 archive" in found.note
    same, other = load("tinyimagenet_crop", root=tmp_path), load("tinyimagenet_crop", root=tmp_path, seed=1)
    assert np.array_equal(np.asarray(found.images), np.asarray(same.images))
    assert not np.array_equal(np.asarray(found.images), np.asarray(other.images))
    few = load("tinyimagenet_crop", root=tmp_path, limit=10)
    assert np.array_equal(np.asarray(few.images), np.asarray(found.images)[::4])


def test_invalid_arguments_raise(data_folder: Path) -> None:
    with pytest.raises(ValueError, match=r"unknown image set 'cifar11': expected one of cifar10, cifar100"):
        load("cifar11")
    with pytest.raises(ValueError, match="unknown image set"):
        load(data_folder / "svhn" / "test_32x32.mat")
    with pytest.raises(ValueError, match="cifar10 has no split 'val': expected 'train' or 'test'"):
        load("cifar10", split="val")
    with pytest.raises(ValueError, match="limit to be at least 1"):
        load("cifar10", limit=0)
    with pytest.raises(ValueError, match="size to be at least 1 pixel"):
        load("cifar10", size=0)
