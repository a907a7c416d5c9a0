"""Test the out-of-distribution images of the demo."""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image
from sklearn.datasets import load_digits, load_sample_image

from pnml.demo import images, text

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def skimage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a fake scikit-image with two textures, which must not be imported because it may download others."""
    package = tmp_path / "skimage"
    (package / "data").mkdir(parents=True)
    (package / "__init__.py").write_text("raise AssertionError('imported')\n")
    for name, grey in (("brick.png", 10), ("gravel.png", 200)):
        Image.new("L", (512, 512), grey).save(package / "data" / name)
    monkeypatch.delitem(sys.modules, "skimage", raising=False)
    monkeypatch.syspath_prepend(str(tmp_path))
    return package


def test_digits_are_enlarged_digits_of_scikit_learn() -> None:
    found, original = images.digits(), load_digits()
    assert found.pixels.shape == (400, 32, 32, 3)
    rows = [i * 1797 // 400 for i in range(400)]
    assert [int(caption[-1]) for caption in found.captions] == [original.target[row] for row in rows]
    assert (found.pixels == found.pixels[..., :1]).all()  # grey
    shrunk = found.pixels[..., 0].reshape(400, 8, 4, 8, 4).mean(axis=(2, 4))
    small = original.images[rows] * 255 / 16
    for one, other in zip(shrunk, small, strict=True):
        assert np.corrcoef(one.ravel(), other.ravel())[0, 1] > 0.95
    assert abs(shrunk.mean() - small.mean()) < 3


def test_crops_have_all_sides_at_random_positions() -> None:
    rows, columns = np.mgrid[:256, :256].astype(np.uint8)
    positions = np.stack([rows, columns, np.zeros_like(rows)], axis=-1)  # every pixel contains its position
    found = images.crops("positions", {"a": positions, "b": positions})
    assert len(found.pixels) == len(found.captions) == 400
    assert Counter(found.captions) == {
        f"{side}-pixel crop of {name}": 50 for side in (32, 64, 128, 256) for name in "ab"
    }
    corners = set()
    for caption, image in zip(found.captions, found.pixels.astype(int), strict=True):
        side = int(caption.split("-")[0])
        step = side // 32
        inner = image[2:-2, 2:-2]  # the filter is truncated at the border
        assert np.abs(np.diff(inner[..., 0], axis=0) - step).max() <= 1
        assert np.abs(np.diff(inner[..., 1], axis=1) - step).max() <= 1
        if side == 32:
            top, left = image[0, 0, :2]
            assert np.array_equal(image, positions[top : top + 32, left : left + 32])
            corners.add((top, left))
    assert len(corners) > 90


def test_crops_are_resized_with_antialiasing() -> None:
    chess = np.indices((300, 300)).sum(axis=0) % 2 * 255
    found = images.crops("chess", {"chess": np.stack([chess] * 3, axis=-1).astype(np.uint8)})
    large = np.array(["32-pixel" not in caption for caption in found.captions])
    assert np.abs(found.pixels[large].astype(int) - 127.5).max() < 40
    assert set(np.unique(found.pixels[~large])) == {0, 255}


def test_crops_depend_on_the_seed() -> None:
    noise = {"noise": np.random.default_rng(0).integers(0, 256, (256, 300, 3), dtype=np.uint8)}
    first, again, other = (images.crops("noise", noise, seed=seed).pixels for seed in (0, 0, 1))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


def test_photographs_are_crops_of_those_of_scikit_learn() -> None:
    found = images.photographs()
    china = load_sample_image("china.jpg")
    small = next(image for image, caption in zip(found.pixels, found.captions, strict=True) if "32" in caption)
    windows = np.lib.stride_tricks.sliding_window_view(china, (32, 32, 3))[:, :, 0]
    candidates = windows[(windows[:, :, 0, 0] == small[0, 0]).all(axis=-1)]
    assert any(np.array_equal(one, small) for one in candidates)


def test_installed_textures_are_used(skimage: Path) -> None:
    assert images.texture_files() == [skimage / "data" / "brick.png", skimage / "data" / "gravel.png"]
    kinds = {kind.name: kind for kind in images.ood_images()}
    textures = kinds["Crops of textures"].pixels
    assert Counter(textures[:, 0, 0, 0].tolist()) == {10: 200, 200: 200}
    assert not text.missing_textures()


@pytest.mark.parametrize("installed", [False, True])
def test_missing_textures_are_left_out_with_a_note(
    skimage: Path, monkeypatch: pytest.MonkeyPatch, *, installed: bool
) -> None:
    if installed:
        for path in (skimage / "data").iterdir():
            path.unlink()
    else:
        monkeypatch.setitem(sys.modules, "skimage", None)
    names = [kind.name for kind in images.ood_images()]
    assert names == ["Handwritten digits", "Crops of photographs", "Uniform noise", "Gaussian noise"]
    assert "brick.png, grass.png, gravel.png" in text.missing_textures()


def test_every_kind_has_distinct_images() -> None:
    for kind in images.ood_images():
        assert kind.pixels.shape == (400, 32, 32, 3)
        assert kind.pixels.dtype == np.uint8
        assert len({image.tobytes() for image in kind.pixels}) > 390, kind.name
        assert len(kind.captions) == 400
