"""SVHN's .mat files: read as SciPy reads them, and refused where they are damaged or forged."""

from __future__ import annotations

import struct
import zlib
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.io import loadmat, savemat

import pnml_bench.data.mat_file
from pnml_bench.data.mat_file import read_mat
from pnml_bench.data.selection import Selection
from pnml_bench.data.svhn import read_svhn

from .layouts import make_svhn, random_images

if TYPE_CHECKING:
    from pathlib import Path

    from pnml_bench.data.selection import Contents

PIXELS = random_images(3, 32).transpose(1, 2, 3, 0)
DIGITS = np.array([[10], [1], [9]])


def saved(*, compressed: bool = False, **arrays: Any) -> bytes:
    file = BytesIO()
    savemat(file, arrays, do_compression=compressed)
    return file.getvalue()


def read(folder: Path, content: bytes) -> Contents:
    (folder / "test_32x32.mat").write_bytes(content)
    return read_svhn(folder, Selection("test"))


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("dtype", ["u1", "i2", "u4", "i8", "f4", "f8"])
def test_arrays_are_those_of_scipy(dtype: str, compressed: bool, tmp_path: Path) -> None:  # noqa: FBT001
    content = saved(X=PIXELS, y=DIGITS.astype(dtype), compressed=compressed)
    found, expected = read_mat(content), loadmat(BytesIO(content))
    for name in ("X", "y"):
        assert np.array_equal(found[name], expected[name])
        assert found[name].dtype == expected[name].dtype
    contents = read(tmp_path, content)
    assert np.array_equal(np.asarray(contents.images), PIXELS.transpose(3, 0, 1, 2))
    assert contents.labels is not None
    assert contents.labels.tolist() == [0, 1, 9]


def test_other_variables_are_left_out() -> None:
    others: dict[str, Any] = {
        "text": "words",
        "cell": np.array([1, "a"], dtype=object),
        "complex": np.array([1j]),
        "struct": {"a": 1},
    }
    found = read_mat(saved(X=PIXELS, y=DIGITS, **others))
    assert found.keys() == {"X", "y"}


def test_big_endian_file_is_read() -> None:
    def element(kind: int, data: bytes) -> bytes:
        return struct.pack(">II", kind, len(data)) + data + bytes(-len(data) % 8)

    parts = [
        (6, struct.pack(">II", 11, 0)),
        (5, struct.pack(">ii", 2, 3)),
        (1, b"y"),
        (4, struct.pack(">6H", *range(6))),
    ]
    matrix = b"".join(element(*part) for part in parts)
    found = read_mat(bytes(124) + b"\1\0MI" + element(14, matrix))
    assert found["y"].tolist() == [[0, 2, 4], [1, 3, 5]]


def compressed_zeros(count: int) -> bytes:
    """Return a file with a compressed element of zeros, a thousandth of their number in bytes."""
    data = zlib.compress(bytes(count), 9)
    return bytes(124) + b"\0\1IM" + struct.pack("<II", 15, len(data)) + data


WHOLE = saved(X=PIXELS, y=DIGITS)
FORGED = {
    "nothing": b"",
    "a header alone": WHOLE[:128],
    "text": b"no file of MATLAB " * 20,
    "cut": WHOLE[:3000],
    "no digits": saved(X=PIXELS),
    "floats": saved(X=PIXELS.astype(float), y=DIGITS),
    "too few digits": saved(X=PIXELS, y=DIGITS[:2]),
    "other digits": saved(X=PIXELS, y=DIGITS + 1),
    "no digit": saved(X=PIXELS, y=DIGITS - np.nan),
    "zeros": compressed_zeros(1000),
    "broken compression": compressed_zeros(1000)[:-5],
    "a size of 4 GB": bytes(124) + b"\0\1IM" + struct.pack("<II", 14, 0xFFFFFFFF) + bytes(100),
    "a small element of 60 KB": bytes(124) + b"\0\1IM" + struct.pack("<II", 60_000 << 16 | 14, 0),
    "many variables": bytes(124) + b"\0\1IM" + struct.pack("<II", 14, 0) * 1000,
}


@pytest.mark.parametrize("content", FORGED.values(), ids=FORGED)
def test_forged_file_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"test_32x32\.mat (is not SVHN|cannot be read as a \.mat file): "):
        read(tmp_path, content)


def test_decompressed_content_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pnml_bench.data.mat_file, "MAX_BYTES", 1 << 15)
    content = compressed_zeros(1 << 20)
    assert len(content) < 1 << 12
    with pytest.raises(ValueError, match="it has more than 65,536 bytes"):
        read(tmp_path, content)


def test_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "test_32x32.mat").open("wb") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(ValueError, match="it has 1,099,511,627,776 bytes, more than 268,435,456"):
        read_svhn(tmp_path, Selection("test"))


@pytest.mark.parametrize("compressed", [True, False])
def test_damaged_files_are_refused_or_read(compressed: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """Damage in the places of lengths and types gives images, or one line that names the file."""
    whole, rng = saved(X=PIXELS, y=DIGITS, compressed=compressed), np.random.default_rng(0)
    for _ in range(200):
        content = bytearray(whole)
        for place in [*rng.integers(124, 230, 2), *rng.integers(len(whole) - 80, len(whole), 1)]:
            content[place] = rng.integers(0, 256)
        try:
            assert np.asarray(read(tmp_path, bytes(content)).images).shape == (3, 32, 32, 3)
        except ValueError as error:
            assert "test_32x32.mat" in str(error)  # noqa: PT017 - either is right


def test_generated_set_is_read(tmp_path: Path) -> None:
    make_svhn(tmp_path, 12)
    labels = read_svhn(tmp_path / "svhn", Selection("train")).labels
    assert labels is not None
    assert labels.tolist() == [1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 2]
