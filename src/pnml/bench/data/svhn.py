"""Read SVHN, the cropped digits, from the published .mat files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.backend.extras import require
from pnml.bench.data.selection import Contents

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.bench.data.selection import Selection

SVHN_FILES = {"train": ("train_32x32.mat",), "test": ("test_32x32.mat",)}


def read_svhn(folder: Path, selection: Selection) -> Contents:
    """Read ``train_32x32.mat`` or ``test_32x32.mat``; label 10, which stands for the digit 0, becomes 0."""
    (file,) = SVHN_FILES[selection.split]
    path = folder / file
    matlab = require("scipy.io", extra="bench", what="reading SVHN")
    with path.open("rb") as stream:
        try:
            stored = matlab.loadmat(stream, variable_names=["X", "y"])
        except Exception as error:  # SciPy raises many types for a truncated or foreign file
            raise ValueError(f"{path} cannot be read as a .mat file: {error}") from error
    pixels, digits = stored.get("X"), stored.get("y")
    if pixels is None or digits is None or pixels.shape != (32, 32, 3, digits.size) or pixels.dtype != np.uint8:
        raise ValueError(f"{path} is not SVHN: expected X, uint8 of shape (32, 32, 3, N), and y with N labels")
    rows = selection.rows(digits.size)
    rows_first = pixels.transpose(3, 0, 1, 2)[rows]
    images = np.stack([rows_first[..., channel] for channel in range(3)], axis=-1)  # faster than copying a transpose
    return Contents(images, digits.reshape(-1)[rows].astype(np.int64) % 10, digits.size)
