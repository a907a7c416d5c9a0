"""Read CIFAR-10 and CIFAR-100 from the published python batches, which are pickles, without running what they say."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np

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


class _StandIn:
    """What a pickle makes in the place of an array and of its dtype: NumPy sees nothing of a file unchecked."""

    state: Any = None

    def __init__(self, *arguments: Any) -> None:
        self.arguments = arguments

    def __setstate__(self, state: Any) -> None:
        self.state = state


def _encode(text: str, _encoding: str) -> str:
    return text


class _Unpickler(pickle.Unpickler):
    """Looks no name up: the five that a stored array needs have stand-ins, and all others are refused."""

    _STAND_INS = {  # noqa: RUF012 - constant
        "numpy.core.multiarray._reconstruct": _StandIn,
        "numpy._core.multiarray._reconstruct": _StandIn,
        "numpy.ndarray": _StandIn,
        "numpy.dtype": _StandIn,
        "_codecs.encode": _encode,
    }

    def find_class(self, module: str, name: str) -> Any:
        """Return the stand-in for a name."""
        dotted = f"{module}.{name}"[:100]
        if dotted not in self._STAND_INS:
            raise pickle.UnpicklingError(f"it refers to {dotted}, which is not allowed")
        return self._STAND_INS[dotted]


def _read_batch(path: Path, label_key: str, classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the pixels (N, 3072) and the labels (N,) of one file."""
    size = path.stat().st_size
    if size > _MAX_BYTES:
        raise ValueError(f"{path} is not a CIFAR batch: it has {size:,} bytes, more than {_MAX_BYTES:,}")
    with path.open("rb") as file:
        try:
            batch = _Unpickler(file, encoding="latin-1").load()
            return _parse_batch(batch, label_key, classes)
        except Exception as error:  # an unpickler raises whatever the file makes it meet
            reason = " ".join(str(error).split())[:200]
            raise ValueError(f"{path} is not a CIFAR batch: {reason}") from error


def _parse_batch(batch: Any, label_key: str, classes: int) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    if isinstance(batch, dict):
        batch = {key.decode("latin-1") if isinstance(key, bytes) else key: value for key, value in batch.items()}
    if not isinstance(batch, dict) or not {"data", label_key} <= batch.keys():
        raise ValueError(f"expected a dict with 'data' and {label_key!r}")
    labels = batch[label_key]
    if not isinstance(labels, list) or not all(type(label) is int and 0 <= label < classes for label in labels):
        raise ValueError(f"expected {label_key!r} to be a list of integers from 0 to {classes - 1}")
    shape = (len(labels), 3 * _SIDE**2)
    pixels = _pixels(batch["data"], shape)
    if pixels is None:
        raise ValueError(f"expected 'data' to be an array of dtype uint8 and shape {shape}")
    return pixels, np.asarray(labels, dtype=np.int64)


def _pixels(stored: Any, shape: tuple[int, int]) -> NDArray[np.uint8] | None:
    """Return a stored array, None if it is not uint8 of a shape, or not whole."""
    if not isinstance(stored, _StandIn) or not isinstance(stored.state, tuple) or len(stored.state) != 5:
        return None
    _, stored_shape, dtype, is_fortran, content = stored.state
    if stored_shape != shape or not isinstance(dtype, _StandIn) or dtype.arguments[:1] != ("u1",):
        return None
    if isinstance(content, str):
        content = content.encode("latin-1")
    if not isinstance(content, bytes) or len(content) != shape[0] * shape[1]:
        return None
    return np.frombuffer(content, dtype=np.uint8).reshape(shape, order="F" if is_fortran else "C")
