"""SVHN's .mat files: read, and refused where they are damaged or forged."""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy.io import savemat

from pnml_bench.data.selection import Selection
from pnml_bench.data.svhn import read_svhn

from .layouts import random_images

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
@pytest.mark.parametrize("dtype", ["u1", "f8"])
def test_pixels_and_digits_are_read(dtype: str, compressed: bool, tmp_path: Path) -> None:  # noqa: FBT001
    contents = read(tmp_path, saved(X=PIXELS, y=DIGITS.astype(dtype), compressed=compressed))
    assert np.array_equal(np.asarray(contents.images), PIXELS.transpose(3, 0, 1, 2))
    assert contents.labels is not None
    assert contents.labels.tolist() == [0, 1, 9]


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
}


@pytest.mark.parametrize("content", FORGED.values(), ids=FORGED)
def test_forged_file_is_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"test_32x32\.mat (is not SVHN|cannot be read as a \.mat file): "):
        read(tmp_path, content)


def test_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "test_32x32.mat").open("wb") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(ValueError, match="it has 1,099,511,627,776 bytes, more than 268,435,456"):
        read_svhn(tmp_path, Selection("test"))
