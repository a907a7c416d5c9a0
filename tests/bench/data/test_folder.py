from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

import pnml_bench.data.lazy_images
from pnml.io.decode import UndecodableError
from pnml_bench.data import load
from pnml_bench.data.folder import read_folder
from pnml_bench.data.lazy_images import LazyImages
from pnml_bench.data.selection import Selection

from .layouts import random_images, write_images

if TYPE_CHECKING:
    from pathlib import Path


def test_load_reads_folder_recursively_in_order(tmp_path: Path) -> None:
    images = random_images(9, 32)
    write_images(tmp_path / "b", images[4:])
    write_images(tmp_path / "a" / "deeper", images[:4], "BMP")
    (tmp_path / "a" / "readme.txt").write_text("not an image")
    (tmp_path / "b" / "._00000.png").write_bytes(b"file manager metadata")
    (tmp_path / "folder.png").mkdir()
    found = load(tmp_path)
    assert np.array_equal(np.asarray(found.images), images)
    assert (found.name, found.labels, found.note) == (str(tmp_path), None, "")
    assert len(load(str(tmp_path), limit=3)) == 3


def test_folder_without_images_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no images in"):
        load(tmp_path)
    (tmp_path / "one.png").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="none of the 1 images decodes"):
        load(tmp_path)


def test_folder_too_large_for_memory_is_lazy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    images = random_images(8, 32)
    paths = write_images(tmp_path, images)
    monkeypatch.setattr(pnml_bench.data.lazy_images, "MAX_BYTES_IN_MEMORY", 8 * 32 * 32 * 3 - 1)
    found = load(tmp_path)
    assert isinstance(found.images, LazyImages)
    assert np.array_equal(found.images[2:5], images[2:5])
    batches = [batch.numpy() for batch in found.batches(3)]
    assert np.array_equal(np.concatenate(batches), np.moveaxis(images, -1, 1))
    assert isinstance(load(tmp_path, limit=7).images, np.ndarray)
    paths[6].write_bytes(b"corrupt")
    with pytest.raises(UndecodableError, match=r"00006\.png"):
        load(tmp_path).images[:]


def test_labels_number_the_top_level_folders(tmp_path: Path) -> None:
    for name in ("pear", "apple"):
        write_images(tmp_path / name / "images", random_images(3, 32))
    contents = read_folder(tmp_path, Selection(), labelled=True)
    assert contents.labels is not None
    assert contents.labels.tolist() == [0, 0, 0, 1, 1, 1]
    (tmp_path / "apple" / "images" / "00001.png").write_bytes(b"corrupt")
    contents = read_folder(tmp_path, Selection(), labelled=True)
    assert contents.labels is not None
    assert contents.labels.tolist() == [0, 0, 1, 1, 1]
    write_images(tmp_path, random_images(1, 32))
    with pytest.raises(ValueError, match="is in no class folder"):
        read_folder(tmp_path, Selection(), labelled=True)
