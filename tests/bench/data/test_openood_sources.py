"""Test the sets of OpenOOD's protocol in the layouts of their publishers."""

from __future__ import annotations

import gzip
import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pnml_bench.data import DataNotFoundError, load

from .layouts import random_images, write_images

if TYPE_CHECKING:
    from pathlib import Path


def write_mnist(root: Path, content: bytes) -> None:
    (root / "mnist").mkdir(exist_ok=True)
    (root / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(content)


def test_mnist_is_read_as_grey_pictures(tmp_path: Path) -> None:
    digits = np.random.default_rng(0).integers(0, 256, (5, 28, 28), dtype=np.uint8)
    write_mnist(tmp_path, gzip.compress(struct.pack(">iiii", 2051, 5, 28, 28) + digits.tobytes(), mtime=0))
    found = load("mnist", root=tmp_path)
    assert np.array_equal(np.asarray(found.images), np.stack([digits] * 3, axis=-1))
    assert (found.labels, found.note) == (None, "5 of the 10,000 published images")
    assert load("mnist", root=tmp_path, limit=2, size=32).images.shape == (2, 32, 32, 3)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"not compressed", "cannot be unpacked"),
        (gzip.compress(b"short", mtime=0), "is not MNIST|cannot be unpacked|buffer size"),
        (
            gzip.compress(struct.pack(">iiii", 2051, 5, 28, 28) + bytes(783), mtime=0),
            "is not MNIST: expected N images of 28×28",
        ),
        (gzip.compress(struct.pack(">iiii", 2049, 1, 28, 28) + bytes(784), mtime=0), "is not MNIST"),
        (gzip.compress(struct.pack(">iiii", 2051, 1, 14, 56) + bytes(784), mtime=0), "is not MNIST"),
        (gzip.compress(struct.pack(">iiii", 2051, 1, 28, 28) + bytes(784), mtime=0)[:-9], "cannot be unpacked"),
    ],
)
def test_a_file_that_is_not_mnist_is_refused(tmp_path: Path, content: bytes, message: str) -> None:
    write_mnist(tmp_path, content)
    with pytest.raises(ValueError, match=message):
        load("mnist", root=tmp_path)


@pytest.mark.parametrize(("name", "folder"), [("textures", "dtd/images/banded"), ("places365", "val_256")])
def test_pictures_of_many_sizes_are_resized(tmp_path: Path, name: str, folder: str) -> None:
    write_images(tmp_path / folder, random_images(2, 40))
    write_images(tmp_path / folder / "more", random_images(2, 64))
    assert load(name, root=tmp_path).images.shape == (4, 256, 256, 3)
    assert load(name, root=tmp_path, size=32).images.shape == (4, 32, 32, 3)


@pytest.mark.parametrize(
    ("name", "way"),
    [("mnist", "pnml data fetch mnist"), ("textures", "pnml data fetch"), ("places365", "by hand from")],
)
def test_an_absent_set_says_how_to_get_it(tmp_path: Path, name: str, way: str) -> None:
    with pytest.raises(DataNotFoundError, match=way):
        load(name, root=tmp_path)
