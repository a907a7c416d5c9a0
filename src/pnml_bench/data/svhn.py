"""Read SVHN, the cropped digits, from the published .mat files."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.extras import require
from pnml_bench.data.selection import Contents

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml_bench.data.selection import Selection

SVHN_FILES = {"train": ("train_32x32.mat",), "test": ("test_32x32.mat",)}

_MAX_BYTES = 1 << 28  # the larger published file has 182 MB


def read_svhn(folder: Path, selection: Selection) -> Contents:
    """Read ``train_32x32.mat`` or ``test_32x32.mat``; label 10, which stands for the digit 0, becomes 0."""
    (file,) = SVHN_FILES[selection.split]
    pixels, digits = _read_arrays(folder / file)
    rows = selection.rows(digits.size)
    rows_first = pixels.transpose(3, 0, 1, 2)[rows]
    images = np.stack([rows_first[..., channel] for channel in range(3)], axis=-1)  # faster than copying a transpose
    return Contents(images, digits.reshape(-1)[rows].astype(np.int64) % 10, digits.size)


def _read_arrays(path: Path) -> tuple[NDArray[np.uint8], NDArray[Any]]:
    """Return X (32, 32, 3, N) and y, N digits, of a file."""
    scipy_io = require("scipy.io", extra="bench", what="reading SVHN")
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise ValueError(f"{path} is not SVHN: it has {size:,} bytes, more than {_MAX_BYTES:,}")
    with path.open("rb") as file:
        try:
            arrays = scipy_io.loadmat(file, variable_names=("X", "y"))
        except Exception as error:  # SciPy raises whatever a damaged file makes it meet
            raise ValueError(f"{path} cannot be read as a .mat file: {error}") from error
    pixels = np.asarray(arrays.get("X"))
    digits = np.asarray(arrays.get("y"))
    if pixels.shape != (32, 32, 3, digits.size) or pixels.dtype != np.uint8:
        raise ValueError(f"{path} is not SVHN: expected X, uint8 of shape (32, 32, 3, N), and y with N labels")
    if not np.isin(digits, np.arange(11)).all():
        raise ValueError(f"{path} is not SVHN: expected y to hold digits, 1 to 10")
    return pixels, digits
