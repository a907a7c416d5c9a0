"""SVHN, the cropped digits, in the published .mat files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.backend.extras import require
from pnml.bench.data.selection import Contents

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.bench.data.selection import Selection

FILES = {"train": ("train_32x32.mat",), "test": ("test_32x32.mat",)}


def read_svhn(folder: Path, selection: Selection) -> Contents:
    """Read ``train_32x32.mat`` or ``test_32x32.mat``; the digit 0, published as label 10, gets label 0."""
    (file,) = FILES[selection.split]
    path = folder / file
    matlab = require("scipy.io", extra="bench", what="reading SVHN")
    with path.open("rb") as stream:
        try:
            stored = matlab.loadmat(stream, variable_names=["X", "y"])
        except Exception as error:  # scipy raises many kinds on a cut or foreign file
            raise ValueError(f"{path} is no .mat file that can be read: {error}") from error
    pixels, digits = stored.get("X"), stored.get("y")
    if pixels is None or digits is None or pixels.shape != (32, 32, 3, digits.size) or pixels.dtype != np.uint8:
        raise ValueError(f"{path} is not SVHN: X, uint8 of shape (32, 32, 3, N), and y with N labels are expected")
    rows = selection.rows(digits.size)
    pictures = pixels.transpose(3, 0, 1, 2)[rows]
    images = np.stack([pictures[..., channel] for channel in range(3)], axis=-1)  # faster than a transposed copy
    return Contents(images, digits.reshape(-1)[rows].astype(np.int64) % 10, digits.size)
