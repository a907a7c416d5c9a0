"""Read CIFAR-10 and CIFAR-100 from the published python batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml_bench.data.batch_pickle import StoredArray, read_pickle
from pnml_bench.data.selection import Contents

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml_bench.data.selection import Selection

CIFAR10_FILES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
CIFAR100_FILES = {"train": ("train",), "test": ("test",)}

_SIDE = 32
_MAX_BYTES = 1 << 28  # the largest published file has 155 MB


def read_cifar10(folder: Path, selection: Selection) -> Contents:
    """Read ``cifar-10-batches-py``."""
    return _read(folder, CIFAR10_FILES[selection.split], selection, "labels", classes=10)


def read_cifar100(folder: Path, selection: Selection) -> Contents:
    """Read ``cifar-100-python``, with the 100 fine labels."""
    return _read(folder, CIFAR100_FILES[selection.split], selection, "fine_labels", classes=100)


def _read(folder: Path, files: tuple[str, ...], selection: Selection, label_key: str, *, classes: int) -> Contents:
    batches = [_read_batch(folder / file, label_key, classes) for file in files]
    pixels, labels = (np.concatenate(parts) for parts in zip(*batches, strict=True))
    rows = selection.rows(len(pixels))
    planes = pixels[rows].reshape(-1, 3, _SIDE, _SIDE)
    images = np.stack([planes[:, channel] for channel in range(3)], axis=-1)  # faster than copying a transpose
    return Contents(images, labels[rows], len(pixels))


def _read_batch(path: Path, label_key: str, classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the pixels (N, 3072) and the labels (N,) of one file."""
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise ValueError(f"{path} is not a CIFAR batch: it has {size:,} bytes, more than {_MAX_BYTES:,}")
    try:
        return _parse_batch(read_pickle(path.read_bytes()), label_key, classes)
    except ValueError as error:
        raise ValueError(f"{path} is not a CIFAR batch: {error}") from error


def _parse_batch(batch: Any, label_key: str, classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if not isinstance(batch, dict) or not {"data", label_key} <= batch.keys():
        raise ValueError(f"expected a dict with 'data' and {label_key!r}")
    data, labels = batch["data"], batch[label_key]
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < classes for label in labels):
        raise ValueError(f"expected {label_key!r} to be a list of integers from 0 to {classes - 1}")
    if not isinstance(data, StoredArray):
        raise ValueError(  # noqa: TRY004 - of a file
            f"expected 'data' to be an array of dtype uint8, got {type(data).__name__}"
        )
    return data.to_uint8((len(labels), 3 * _SIDE**2)), np.asarray(labels, dtype=np.int64)
