"""Test TinyImageNet as a labelled set, on a made-up folder in the publisher's layout."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest

import pnml_bench.data.tiny_imagenet as module
from pnml_bench.data import DataNotFoundError, load
from pnml_bench.protocol import plan

from .layouts import make_tiny_imagenet, random_images, write_images

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

CLASSES = ("n02", "n01", "n03")
BOX = "0\t32\t44\t62"


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a data folder with three classes: four training and two validation images of each, and test images."""
    monkeypatch.setattr(module, "CLASSES", len(CLASSES))
    monkeypatch.setattr(module, "IMAGES_OF_A_CLASS", {"train": 4, "test": 2})
    folder = tmp_path / "tiny-imagenet-200"
    make_tiny_imagenet(tmp_path, 5)
    (folder / "wnids.txt").write_text("\n".join(CLASSES) + "\n")
    for number, name in enumerate(CLASSES):
        images = write_images(folder / "train" / name / "images", random_images(4, 64, number), "JPEG")
        (folder / "train" / name / f"{name}_boxes.txt").write_text("".join(f"{file.name}\t{BOX}\n" for file in images))
    paths = write_images(folder / "val" / "images", random_images(6, 64, 9), "JPEG")
    lines = [f"{path.name}\t{CLASSES[number % 3]}\t{BOX}" for number, path in enumerate(paths)]
    (folder / "val" / "val_annotations.txt").write_text("\n".join(reversed(lines)) + "\n")
    return tmp_path


def test_training_images_are_labelled_by_folder_in_the_order_of_ids(root: Path) -> None:
    found = load("tinyimagenet", split="train", root=root)
    assert found.labels is not None
    assert found.labels.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    of_n01 = load(root / "tiny-imagenet-200" / "train" / "n01" / "images")
    assert np.array_equal(np.asarray(found.images)[:4], np.asarray(of_n01.images))
    assert found.images.shape == (12, 64, 64, 3)
    assert found.note == "12 of the 100,000 published images"


def test_test_images_are_the_validation_images_labelled_by_the_annotations(root: Path) -> None:
    found = load("tinyimagenet", root=root)
    assert found.labels is not None
    assert found.labels.tolist() == [2, 0, 1, 2, 0, 1]  # reversed: n03, n01, n02, ... of n01, n02, n03
    stored = load(root / "tiny-imagenet-200" / "val" / "images")
    assert np.array_equal(np.asarray(found.images), np.asarray(stored.images)[::-1])


@pytest.mark.parametrize(
    ("split", "spoil", "message"),
    [
        ("train", "train/n02/images/00001.JPEG", "class n02 has 3 images, expected 4 (so have 1 of 3 classes)"),
        ("train", "train/n02/images", "train lacks 1 of 3 classes: there is no n02/images"),
        ("test", "val/images/00004.JPEG", "val/images lacks 1 images, such as 00004.JPEG"),
    ],
)
def test_what_is_missing_is_named(root: Path, split: str, spoil: str, message: str) -> None:
    path = root / "tiny-imagenet-200" / spoil
    path.rename(root / "elsewhere")
    with pytest.raises(ValueError, match=re.escape(message)):
        load("tinyimagenet", split=split, root=root)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda lines: lines[1:], "val_annotations.txt lacks 1 images, such as 00005.JPEG"),
        (lambda lines: [*lines, lines[0]], "val_annotations.txt names 1 images twice"),
        (lambda lines: [*lines, f"new.JPEG\tn04\t{BOX}"], "line 7: expected the name of an image, a tab and a class"),
        (lambda lines: [f"../../secret\tn01\t{BOX}", *lines], "line 1: expected the name of an image"),
        (lambda lines: [line.replace("n01", "n02") for line in lines], "class n01 has 0 images, expected 2"),
    ],
)
def test_annotations_that_do_not_fit_the_images_are_refused(
    root: Path, change: Callable[[list[str]], list[str]], message: str
) -> None:
    path = root / "tiny-imagenet-200" / "val" / "val_annotations.txt"
    path.write_text("\n".join(change(path.read_text().splitlines())))
    with pytest.raises(ValueError, match=re.escape(message)):
        load("tinyimagenet", root=root)


def test_test_images_alone_are_not_enough(tmp_path: Path) -> None:
    make_tiny_imagenet(tmp_path, 3)
    expected = "expected tiny-imagenet-200/wnids.txt and tiny-imagenet-200/train"
    with pytest.raises(DataNotFoundError, match=expected):
        load("tinyimagenet", split="train", root=tmp_path)


def test_pictures_of_its_own_classes_are_no_ood_set() -> None:
    with pytest.raises(ValueError, match="'tinyimagenet_crop' has pictures of the classes of tinyimagenet"):
        plan("resnet-18-small", "tinyimagenet", ["tinyimagenet_crop"], ["pnml"])
    assert [cell.ood for cell in plan("vit-small", "tinyimagenet", ["cifar10", "svhn"], ["pnml"])] == [
        "cifar10",
        "svhn",
    ]
