"""Read CIFAR-10 and CIFAR-100 from the published python batches."""

from __future__ import annotations

import codecs
import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.bench.data.selection import Contents

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.bench.data.selection import Selection

CIFAR10_FILES = {"train": tuple(f"data_batch_{i}" for i in range(1, 6)), "test": ("test_batch",)}
CIFAR100_FILES = {"train": ("train",), "test": ("test",)}

_RECONSTRUCT = np.empty(0).__reduce__()[0]  # its module differs between versions of NumPy
_ALLOWED = {
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("_codecs", "encode"): codecs.encode,
}


class _BatchUnpickler(pickle.Unpickler):
    """Resolves only the names that python batches use, so that a malicious file cannot run code."""

    def find_class(self, module_name: str, global_name: str) -> Any:
        try:
            return _ALLOWED[module_name, global_name]
        except KeyError:
            raise ValueError(f"it refers to {module_name}.{global_name}, which is not allowed") from None


def read_cifar10(folder: Path, selection: Selection) -> Contents:
    """Read ``cifar-10-batches-py``."""
    return _read(folder, CIFAR10_FILES[selection.split], selection, b"labels")


def read_cifar100(folder: Path, selection: Selection) -> Contents:
    """Read ``cifar-100-python``, with the 100 fine labels."""
    return _read(folder, CIFAR100_FILES[selection.split], selection, b"fine_labels")


def _read(folder: Path, files: tuple[str, ...], selection: Selection, label_key: bytes) -> Contents:
    batches = [_read_batch(folder / file, label_key) for file in files]
    pixels = np.concatenate([batch[b"data"] for batch in batches])
    labels = np.concatenate([np.asarray(batch[label_key], dtype=np.int64) for batch in batches])
    rows = selection.rows(len(pixels))
    planes = pixels[rows].reshape(-1, 3, 32, 32)
    images = np.stack([planes[:, channel] for channel in range(3)], axis=-1)  # faster than copying a transpose
    return Contents(images, labels[rows], len(pixels))


def _read_batch(path: Path, label_key: bytes) -> dict[bytes, Any]:
    with path.open("rb") as file:
        try:
            batch = _BatchUnpickler(file, encoding="bytes").load()
        except Exception as error:  # a malicious or truncated file can make the unpickler raise anything
            raise ValueError(f"{path} is not a CIFAR batch: {error}") from error
    if not isinstance(batch, dict) or not {b"data", label_key} <= batch.keys():
        raise ValueError(f"{path} is not a CIFAR batch: expected a dict with 'data' and {label_key.decode()!r}")
    data, labels = batch[b"data"], batch[label_key]
    if not isinstance(data, np.ndarray) or data.dtype != np.uint8 or data.shape != (len(labels), 3072):
        raise ValueError(f"{path} is not a CIFAR batch: expected 'data' of dtype uint8 and shape ({len(labels)}, 3072)")
    return batch
