"""What the demo shows to the network."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits, load_sample_image

from pnml.demo import pictures, words

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def skimage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A scikit-image with two of the textures, which must not be imported: it might download."""
    package = tmp_path / "skimage"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')\n")
    for name, grey in (("brick.png", 10), ("gravel.png", 200)):
        Image.new("L", (512, 512), grey).save(package / "data" / name)
    monkeypatch.delitem(sys.modules, "skimage", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return package


def test_digits_are_enlarged() -> None:
    found, original = pictures.digits(), load_digits()
    assert found.images.shape == (400, 32, 32, 3)
    rows = [i * 1797 // 400 for i in range(400)]
    assert [int(caption[-1]) for caption in found.captions] == [original.target[row] for row in rows]
    assert (found.images == found.images[..., :1]).all(), "grey"
    shrunk = found.images[..., 0].reshape(400, 8, 4, 8, 4).mean(axis=(2, 4))
    small = original.images[rows] * 255 / 16
    for one, other in zip(shrunk, small, strict=True):
        assert np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.95
    assert abs(shrunk.mean() - small.mean()) < 3


def test_windows_are_cut_and_shrunk() -> None:
    rows, columns = np.mgrid[:256, :256].astype(np.uint8)
    places = np.stack([rows, columns, np.zeros_like(rows)], axis=-1)  # every pixel says where it is
    found = pictures.windows("places", {"a": places, "b": places})
    assert len(found.images) == len(found.captions) == 400
    assert Counter(found.captions) == {
        f"a {side}-pixel window of {name}": 50 for side in (32, 64, 128, 256) for name in "ab"
    }
    corners = set()
    for caption, image in zip(found.captions, found.images.astype(int), strict=True):
        side = int(caption.split()[1].split("-")[0])
        step = side // 32
        inner = image[2:-2, 2:-2]  # at the border the filter is cut
        assert np.abs(np.diff(inner[..., 0], axis=0) - step).max() <= 1
        assert np.abs(np.diff(inner[..., 1], axis=1) - step).max() <= 1
        if side == 32:
            top, left = image[0, 0, :2]
            assert np.array_equal(image, places[top : top + 32, left : left + 32])
            corners.add((top, left))
    assert len(corners) > 90, "at many places"


def test_windows_are_shrunk_with_antialiasing() -> None:
    chess = np.indices((300, 300)).sum(axis=0) % 2 * 255
    found = pictures.windows("chess", {"chess": np.stack([chess] * 3, axis=-1).astype(np.uint8)})
    large = np.array(["32-pixel" not in caption for caption in found.captions])
    assert np.abs(found.images[large].astype(int) - 127.5).max() < 40
    assert set(np.unique(found.images[~large])) == {0, 255}


def test_windows_depend_on_the_seed_alone() -> None:
    picture = {"noise": np.random.default_rng(0).integers(0, 256, (256, 300, 3), dtype=np.uint8)}
    first, again, other = (pictures.windows("noise", picture, seed=seed).images for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_photographs_are_those_of_scikit_learn() -> None:
    found = pictures.photographs()
    china = load_sample_image("china.jpg")
    small = next(image for image, said in zip(found.images, found.captions, strict=True) if "32" in said)
    seen = np.lib.stride_tricks.sliding_window_view(china, (32, 32, 3))[:, :, 0]
    assert (seen[:, :, 0, 0] == small[0, 0]).all(axis=-1).any()
    assert any(np.array_equal(one, small) for one in seen[(seen[:, :, 0, 0] == small[0, 0]).all(axis=-1)])


def test_textures_that_are_installed_are_shown(skimage: Path) -> None:
    assert pictures.texture_files() == [skimage / "data" / "brick.png", skimage / "data" / "gravel.png"]
    shown = {one.name: one for one in pictures.strange_pictures()}
    textures = shown["Windows of textures"].images
    assert Counter(textures[:, 0, 0, 0].tolist()) == {10: 200, 200: 200}
    assert not words.left_out()


@pytest.mark.parametrize("installed", [False, True])
def test_absent_textures_are_left_out_and_named(
    skimage: Path, monkeypatch: pytest.MonkeyPatch, *, installed: bool
) -> None:
    if installed:
        for path in (skimage / "data").iterdir():
            path.unlink()
    else:
        monkeypatch.setitem(sys.modules, "skimage", None)
    names = [one.name for one in pictures.strange_pictures()]
    assert names == ["Handwritten digits", "Windows of photographs", "Uniform noise", "Gaussian noise"]
    assert "brick.png, grass.png, gravel.png" in words.left_out()


def test_every_kind_has_its_own_pictures() -> None:
    for one in pictures.strange_pictures():
        assert one.images.shape == (400, 32, 32, 3)
        assert one.images.dtype == np.uint8
        assert len({image.tobytes() for image in one.images}) > 390, one.name
        assert len(one.captions) == 400
