from __future__ import annotations

import os
import pickle
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from pnml.io.decode import UndecodableError
from pnml_bench.data import SETS, DataNotFoundError, load

from .layouts import ODIN_FOLDERS, make_cifar10, make_odin, make_svhn, make_tiny_imagenet, random_images

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


def test_svhn_labels_and_pixels(data_folder: Path) -> None:
    found = load("svhn", split="train")
    assert found.labels is not None
    assert found.labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
    assert found.labels.dtype == np.int64
    assert np.array_equal(np.asarray(found.images), random_images(12, 32, seed=21))


def test_file_that_is_not_svhn_raises(tmp_path: Path) -> None:
    path = tmp_path / "svhn" / "test_32x32.mat"
    path.parent.mkdir()
    for content in ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, {"X": np.zeros((2, 3, 32, 32)), "y": np.ones((2, 1))}):
        savemat(path, content)
        with pytest.raises(ValueError, match=r"test_32x32\.mat is not SVHN"):
            load("svhn", root=tmp_path)
    path.write_bytes(b"MATLAB 5.0 MAT-file" + bytes(200))
    with pytest.raises(ValueError, match=r"test_32x32\.mat cannot be read as a \.mat file"):
        load("svhn", root=tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match="test_32x32"):
        load("svhn", root=tmp_path)


@pytest.mark.parametrize("name", ["tinyimagenet_crop", "lsun_crop"])
def test_odin_crops_are_the_central_32_pixels(name: str, data_folder: Path) -> None:
    seed = {"tinyimagenet_crop": 40, "lsun_crop": 42}[name]
    assert np.array_equal(np.asarray(load(name).images), random_images(12, 36, seed)[:, 2:34, 2:34])


def test_odin_resized_sets_are_unchanged(data_folder: Path) -> None:
    assert np.array_equal(np.asarray(load("tinyimagenet_resize").images), random_images(12, 32, seed=41))
    assert np.array_equal(np.asarray(load("lsun_resize").images), random_images(12, 32, seed=43))


def test_odin_images_directly_in_folder_are_read(tmp_path: Path) -> None:
    make_odin(tmp_path, 3)
    for folder, _, _ in ODIN_FOLDERS.values():
        for path in (tmp_path / folder).iterdir():
            path.rename(tmp_path / folder.split("/")[0] / path.name)
    assert len(load("isun", root=tmp_path)) == 3
    assert np.array_equal(np.asarray(load("lsun_resize", root=tmp_path).images), random_images(3, 32, seed=43))


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


def test_tinyimagenet_resize_is_antialiased(tmp_path: Path) -> None:
    make_tiny_imagenet(tmp_path, 4)
    found = load("tinyimagenet_resize", root=tmp_path)
    for path, image in zip(sorted(tmp_path.rglob("*.JPEG")), np.asarray(found.images), strict=True):
        blocks = np.asarray(Image.open(path).convert("RGB"), dtype=float).reshape(32, 2, 32, 2, 3).mean(axis=(1, 3))
        # A bilinear filter twice as wide as a pixel includes neighbours: close to the block mean, not equal.
        assert np.corrcoef(blocks.ravel(), image.ravel())[0, 1] > 0.95
    assert "antialiasing" in found.note
    path.write_bytes(b"corrupt")
    with pytest.raises(UndecodableError, match=path.name):
        load("tinyimagenet_resize", root=tmp_path)


def test_tinyimagenet_resize_nearest_takes_every_second_pixel(tmp_path: Path) -> None:
    make_tiny_imagenet(tmp_path, 4)
    found = load("tinyimagenet_resize_nearest", root=tmp_path)
    for path, image in zip(sorted(tmp_path.rglob("*.JPEG")), np.asarray(found.images), strict=True):
        assert np.array_equal(image, np.asarray(Image.open(path).convert("RGB"))[1::2, 1::2])
    assert "re-made" in found.note


def test_odin_archives_are_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make_tiny_imagenet(tmp_path / "first", 3)
    make_odin(tmp_path / "second", 4)
    monkeypatch.setenv("PNML_DATA", f"{tmp_path / 'first'}{os.pathsep}{tmp_path / 'second'}")
    assert len(load("tinyimagenet_crop")) == 4
    assert len(load("tinyimagenet_resize")) == 4


def test_imagenet30_limit_keeps_classes_balanced(data_folder: Path) -> None:
    for split in ("train", "test"):
        found = load("imagenet30", split=split, limit=9, size=32)
        assert found.labels is not None
        assert found.labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def test_limit_is_in_note(data_folder: Path) -> None:
    assert load("cifar10", limit=4).note == ("12 of the 10,000 published images; limited to 4 images, evenly spaced")
    assert len(load("cifar10", limit=100)) == 12


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
