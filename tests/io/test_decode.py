from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

import pnml.io.decode
from bench.data.layouts import pictures, write_pictures
from pnml.io.decode import LazyImages, UndecodableError, centre_crop_to, decode, read_image, resize_to, resized

if TYPE_CHECKING:
    from pathlib import Path


def png(mode: str, size: tuple[int, int] = (6, 4)) -> bytes:
    file = BytesIO()
    Image.new(mode, size, 1 if mode == "P" else None).save(file, format="PNG")
    return file.getvalue()


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "LA"])
def test_every_kind_of_picture_becomes_rgb(mode: str) -> None:
    assert read_image(png(mode)).shape == (4, 6, 3)


def test_pixels_survive(tmp_path: Path) -> None:
    images = pictures(7, 8)
    for ending in ("png", "bmp", "webp", "jpeg"):
        paths = write_pictures(tmp_path / ending, images, ending)
        found, kept = decode(paths)
        assert kept.tolist() == list(range(7))
        expected = [np.asarray(Image.open(path).convert("RGB")) for path in paths]
        assert np.array_equal(found, expected)
    assert np.array_equal(decode(write_pictures(tmp_path, images))[0], images)


@pytest.mark.parametrize("bad", [b"", b"not a picture", png("RGB")[:40], png("RGB")[:-25]])
def test_what_does_not_decode_is_left_out_or_fatal(bad: bytes) -> None:
    good = png("RGB")
    images, kept = decode([bad, good, bad, good])
    assert len(images) == 2
    assert kept.tolist() == [1, 3]
    with pytest.raises(UndecodableError, match="does not decode as a picture"):
        decode([good, bad], strict=True)
    with pytest.raises(ValueError, match="none of the 2 pictures decodes"):
        decode([bad, bad])


def test_the_file_that_does_not_decode_is_named(tmp_path: Path) -> None:
    path = tmp_path / "torn.png"
    path.write_bytes(b"\x89PNG")
    with pytest.raises(UndecodableError, match=r"torn\.png does not decode"):
        read_image(path)


def test_different_sizes_need_a_fit() -> None:
    encoded = [png("RGB"), png("RGB", (8, 8))]
    with pytest.raises(ValueError, match=r"\(8×8 and 6×4 pixels\): give size="):
        decode(encoded)
    assert decode(encoded, fit=resize_to(5))[0].shape == (2, 5, 5, 3)


@pytest.mark.parametrize("side", [32, 33, 36, 47])
def test_the_middle_is_cropped(side: int) -> None:
    image = np.random.default_rng(side).integers(0, 256, (side, side, 3), dtype=np.uint8)
    first = (side - 32) // 2
    cropped = np.asarray(centre_crop_to(32)(Image.fromarray(image)))
    assert np.array_equal(cropped, image[first : first + 32, first : first + 32])


def test_a_small_picture_has_no_crop() -> None:
    with pytest.raises(ValueError, match="30×40 pixels has no crop of 32×32"):
        centre_crop_to(32)(Image.new("RGB", (30, 40)))


def test_resizing_down_by_two_averages_and_does_not_alias() -> None:
    stripes = np.zeros((1, 64, 64, 3), dtype=np.uint8)
    stripes[:, :, ::2] = 200
    small = np.asarray(resized(stripes, 32))
    assert small.shape == (1, 32, 32, 3)
    assert np.all(np.abs(small[:, :, 1:-1].astype(int) - 100) <= 1)


def test_resizing_to_the_same_size_changes_nothing() -> None:
    images = pictures(3, 32)
    assert resized(images, 32) is images


def test_what_is_too_large_for_memory_is_resized_when_used(monkeypatch: pytest.MonkeyPatch) -> None:
    images = pictures(5, 16)
    at_once = resized(images, 8)
    assert isinstance(at_once, np.ndarray)
    monkeypatch.setattr(pnml.io.decode, "IN_MEMORY", 5 * 8 * 8 * 3 - 1)
    later = resized(images, 8)
    assert isinstance(later, LazyImages)
    assert np.array_equal(later[:], at_once)
