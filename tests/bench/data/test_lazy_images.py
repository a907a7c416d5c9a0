from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING

import numpy as np
import pytest
from PIL import Image

import pnml_bench.data.lazy_images
from bench.data.layouts import random_images, write_images
from pnml.io.decode import UndecodableError
from pnml_bench.data.lazy_images import LazyImages, centre_crop_to, decode, resize_images

if TYPE_CHECKING:
    from pathlib import Path


def png(mode: str, size: tuple[int, int] = (6, 4)) -> bytes:
    file = BytesIO()
    Image.new(mode, size, 1 if mode == "P" else None).save(file, format="PNG")
    return file.getvalue()


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


@pytest.mark.parametrize("side", [32, 33, 36, 47])
def test_centre_crop_returns_central_pixels(side: int) -> None:
    image = np.random.default_rng(side).integers(0, 256, (side, side, 3), dtype=np.uint8)
    first = (side - 32) // 2
    cropped = np.asarray(centre_crop_to(32)(Image.fromarray(image)))
    assert np.array_equal(cropped, image[first : first + 32, first : first + 32])


def test_centre_crop_of_small_image_raises() -> None:
    with pytest.raises(ValueError, match="at least 32×32 pixels, got 30×40"):
        centre_crop_to(32)(Image.new("RGB", (30, 40)))


def test_resized_images_too_large_for_memory_are_lazy(monkeypatch: pytest.MonkeyPatch) -> None:
    images = random_images(5, 16)
    eager = resize_images(images, 8)
    assert isinstance(eager, np.ndarray)
    monkeypatch.setattr(pnml_bench.data.lazy_images, "MAX_BYTES_IN_MEMORY", 5 * 8 * 8 * 3 - 1)
    lazy = resize_images(images, 8)
    assert isinstance(lazy, LazyImages)
    assert np.array_equal(lazy[:], eager)
