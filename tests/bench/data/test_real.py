"""Tests of the real sets, in the folders of the environment variable PNML_DATA."""

from __future__ import annotations

import os

import numpy as np
import pytest

from pnml_bench.data import SETS, DataNotFoundError, load

pytestmark = pytest.mark.skipif("PNML_DATA" not in os.environ, reason="set PNML_DATA to a folder of image sets")


def loaded(name: str, split: str = "test") -> tuple[np.ndarray, np.ndarray]:
    try:
        found = load(name, split=split)
    except DataNotFoundError as error:
        pytest.skip(str(error))
    return np.asarray(found.images), np.zeros(0) if found.labels is None else found.labels


@pytest.mark.parametrize(("name", "per_class"), [("cifar10", 1000), ("cifar100", 100)])
def test_cifar_is_complete_and_balanced(name: str, per_class: int) -> None:
    images, labels = loaded(name)
    assert images.shape == (10_000, 32, 32, 3)
    assert np.bincount(labels).tolist() == [per_class] * (10_000 // per_class)
    images, labels = loaded(name, "train")
    assert images.shape == (50_000, 32, 32, 3)
    assert np.bincount(labels).tolist() == [5 * per_class] * (10_000 // per_class)


def test_cifar10_has_known_channel_means() -> None:
    images, _ = loaded("cifar10", "train")
    assert images.mean(axis=(0, 1, 2)) / 255 == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)


def test_svhn_has_published_class_counts() -> None:
    images, labels = loaded("svhn")
    assert images.shape == (26_032, 32, 32, 3)
    assert np.bincount(labels).tolist() == [1744, 5099, 4149, 2882, 2523, 2384, 1977, 2019, 1660, 1595]


@pytest.mark.parametrize("name", ["tinyimagenet_crop", "tinyimagenet_resize", "lsun_crop", "lsun_resize", "isun"])
def test_other_sets_are_complete(name: str) -> None:
    images, _ = loaded(name)
    assert images.shape == (SETS[name].counts["test"], 32, 32, 3)
    assert len(np.unique(images[::100], axis=0)) == len(images[::100])
