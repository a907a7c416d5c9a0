"""Read the test images of MNIST from the publisher's compressed file."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

import numpy as np

from pnml_bench.data.selection import Contents

if TYPE_CHECKING:
    from pathlib import Path

    from pnml_bench.data.selection import Selection

MNIST_FILES = {"test": ("t10k-images-idx3-ubyte.gz",)}

_MAGIC = 2051  # three-dimensional uint8
_SIDE = 28
_MOST = 60_000  # images


def read_mnist(folder: Path, selection: Selection) -> Contents:
    """Read the digits as grey pictures of 28×28 pixels, without labels."""
    path = folder / MNIST_FILES["test"][0]
    try:
        with gzip.open(path) as file:
            header = np.frombuffer(file.read(16), dtype=">i4")
            pixels = np.frombuffer(file.read(_MOST * _SIDE**2 + 1), dtype=np.uint8)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} cannot be unpacked: {error}") from error
    count = int(header[1]) if len(header) == 4 else -1
    if header.tolist() != [_MAGIC, count, _SIDE, _SIDE] or len(pixels) != count * _SIDE**2:
        raise ValueError(f"{path} is not MNIST: expected N images of {_SIDE}×{_SIDE} pixels, at most {_MOST:,}")
    grey = pixels.reshape(count, _SIDE, _SIDE)[selection.rows(count)]
    return Contents(np.repeat(grey[..., None], 3, axis=-1), None, count)
