"""Images of 16 bits and of floats become 8 bits by the range of their format."""

from __future__ import annotations

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from image_bytes import pack_12_bits, tiff
from pnml.io.decode import UndecodableError, read_image

RAMP = np.arange(65536, dtype=np.uint16).reshape(256, 256)


def saved(values: np.ndarray[Any, Any], kind: str) -> bytes:
    file = BytesIO()
    Image.fromarray(values).save(file, format=kind)
    return file.getvalue()


def grey(encoded: bytes) -> np.ndarray[Any, Any]:
    image = read_image(encoded)
    assert image.dtype == np.uint8
    assert image.shape[2] == 3
    assert (image == image[..., :1]).all()
    return image[..., 0]


def pgm(values: np.ndarray[Any, Any], largest: int) -> bytes:
    return b"P5\n%d %d\n%d\n" % (*values.shape[::-1], largest) + values.astype(">u2").tobytes()


@pytest.mark.parametrize(
    "encoded",
    [saved(RAMP, "PNG"), saved(RAMP, "TIFF"), tiff(RAMP), tiff(RAMP.astype(">u2")), pgm(RAMP, 65535)],
    ids=["png", "tiff", "little-endian tiff", "big-endian tiff", "pgm"],
)
def test_sixteen_bits_keep_the_upper_eight(encoded: bytes) -> None:
    found = grey(encoded)
    assert np.array_equal(found, [[value // 256 for value in row] for row in RAMP.tolist()])
    assert np.bincount(found.ravel()).tolist() == [256] * 256  # nothing saturates


def test_twelve_bits_keep_the_upper_eight() -> None:
    values = np.arange(4096, dtype=np.uint16).reshape(64, 64)
    found = grey(tiff(values, bits=12, content=pack_12_bits(values)))
    assert np.array_equal(found, [[value // 16 for value in row] for row in values.tolist()])


@pytest.mark.parametrize("dtype", ["<f4", ">f4"])
def test_floats_from_0_to_1_use_the_whole_range(dtype: str) -> None:
    values = np.linspace(0, 1, 4096).reshape(64, 64)
    found = grey(tiff(values.astype(dtype)))
    np.testing.assert_allclose(found, values * 255, atol=0.5 + 1e-4)
    assert sorted(set(found.ravel().tolist())) == list(range(256))


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        (np.array([[0, 255]], dtype=np.float32), "its floats go from 0 to 255, expected 0 to 1"),
        (np.array([[-0.5, 0.5]], dtype=np.float32), "its floats go from -0.5 to 0.5"),
        (np.array([[0, np.nan]], dtype=np.float32), "its floats go from nan to nan"),
        (np.array([[0, np.inf]], dtype=np.float32), "its floats go from 0 to inf"),
        (np.array([[0, 70_000]], dtype=np.int32), "more than 16 bits or a sign"),
        (np.array([[0, 70_000]], dtype=np.uint32), "more than 16 bits or a sign"),
        (np.array([[-5, 5]], dtype=np.int16), "more than 16 bits or a sign"),
    ],
)
def test_values_of_unknown_range_are_refused(values: np.ndarray[Any, Any], problem: str) -> None:
    with pytest.raises(UndecodableError, match=problem):
        read_image(tiff(values))


@pytest.mark.parametrize("values", [RAMP, np.zeros((2, 2), dtype=np.float32)])
def test_values_that_grow_from_white_to_black_are_refused(values: np.ndarray[Any, Any]) -> None:
    with pytest.raises(UndecodableError, match="from white to black: store them from black to white"):
        read_image(tiff(values, photometric=0))


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGB", "RGBA"])
def test_eight_bits_are_what_pillow_makes_of_them(mode: str) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (6, 5, 3), dtype=np.uint8)
    image, file = Image.fromarray(pixels).convert(mode), BytesIO()
    image.save(file, format="PNG")
    assert np.array_equal(read_image(file.getvalue()), np.asarray(image.convert("RGB")))
