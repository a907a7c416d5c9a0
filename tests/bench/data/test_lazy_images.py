from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

import pnml_bench.data.lazy_images
from bench.data.layouts import random_images, write_images
from pnml.io.decode import UndecodableError, read_image, resize_to
from pnml_bench.data.lazy_images import LazyImages, centre_crop_to, decode, resize_images

if TYPE_CHECKING:
    from pathlib import Path


def png(mode: str, size: tuple[int, int] = (6, 4)) -> bytes:
    file = BytesIO()
    Image.new(mode, size, 1 if mode == "P" else None).save(file, format="PNG")
    return file.getvalue()


@pytest.mark.parametrize("mode", ["L", "RGB", "RGBA", "P", "1", "LA"])
def test_read_image_converts_every_mode_to_rgb(mode: str) -> None:
    assert read_image(png(mode)).shape == (4, 6, 3)


def test_decode_returns_pixels_of_every_format(tmp_path: Path) -> None:
    images = random_images(7, 8)
    for suffix in ("png", "bmp", "webp", "jpeg"):
        paths = write_images(tmp_path / suffix, images, suffix)
        found, kept = decode(paths)
        assert kept.tolist() == list(range(7))
        expected = [np.asarray(Image.open(path).convert("RGB")) for path in paths]
        assert np.array_equal(found, expected)
    assert np.array_equal(decode(write_images(tmp_path, images))[0], images)


@pytest.mark.parametrize("bad", [b"", b"not an image", png("RGB")[:40], png("RGB")[:-25]])
def test_undecodable_image_is_skipped_or_raises_if_strict(bad: bytes) -> None:
    good = png("RGB")
    images, kept = decode([bad, good, bad, good])
    assert len(images) == 2
    assert kept.tolist() == [1, 3]
    with pytest.raises(UndecodableError, match="does not decode as an image"):
        decode([good, bad], strict=True)
    with pytest.raises(ValueError, match="none of the 2 images decodes"):
        decode([bad, bad])


def test_undecodable_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "corrupt.png"
    path.write_bytes(b"\x89PNG")
    with pytest.raises(UndecodableError, match=r"corrupt\.png does not decode"):
        read_image(path)


def test_different_sizes_need_a_transform() -> None:
    encoded = [png("RGB"), png("RGB", (8, 8))]
    with pytest.raises(ValueError, match="got 8×8 and 6×4 pixels: pass size="):
        decode(encoded)
    assert decode(encoded, transform=resize_to(5))[0].shape == (2, 5, 5, 3)


@pytest.mark.parametrize("side", [32, 33, 36, 47])
def test_centre_crop_returns_central_pixels(side: int) -> None:
    image = np.random.default_rng(side).integers(0, 256, (side, side, 3), dtype=np.uint8)
    first = (side - 32) // 2
    cropped = np.asarray(centre_crop_to(32)(Image.fromarray(image)))
    assert np.array_equal(cropped, image[first : first + 32, first : first + 32])


def test_centre_crop_of_small_image_raises() -> None:
    with pytest.raises(ValueError, match="at least 32×32 pixels, got 30×40"):
        centre_crop_to(32)(Image.new("RGB", (30, 40)))


def test_resizing_is_antialiased() -> None:
    stripes = np.zeros((1, 64, 64, 3), dtype=np.uint8)
    stripes[:, :, ::2] = 200
    small = np.asarray(resize_images(stripes, 32))
    assert small.shape == (1, 32, 32, 3)
    assert np.all(np.abs(small[:, :, 1:-1].astype(int) - 100) <= 1)


def test_resizing_to_same_size_returns_input() -> None:
    images = random_images(3, 32)
    assert resize_images(images, 32) is images


def test_resized_images_too_large_for_memory_are_lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    images = random_images(5, 16)
    eager = resize_images(images, 8)
    assert isinstance(eager, np.ndarray)
    monkeypatch.setattr(pnml_bench.data.lazy_images, "MAX_BYTES_IN_MEMORY", 5 * 8 * 8 * 3 - 1)
    lazy = resize_images(images, 8)
    assert isinstance(lazy, LazyImages)
    assert np.array_equal(lazy[:], eager)
