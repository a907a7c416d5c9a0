"""Arrays and text as one safetensors file, whose bytes depend on these alone.

The writer of the safetensors package keeps text in a hash table, so that two files of the same content differ. It also
writes under a temporary name that is not ours to clean up.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    Arrays = Mapping[str, np.ndarray[Any, Any]]

_NAMES = {
    **{f"<f{size}": f"F{8 * size}" for size in (2, 4, 8)},
    **{f"<i{size}": f"I{8 * size}" for size in (2, 4, 8)},
    **{f"<u{size}": f"U{8 * size}" for size in (2, 4, 8)},
    "|i1": "I8",
    "|u1": "U8",
    "|b1": "BOOL",
}
_ALIGNMENT = 8  # bytes


def write_tensors(path: Path, arrays: Arrays, metadata: Mapping[str, str]) -> None:
    """Write arrays in an order that keeps numbers aligned, and metadata in the order of its keys.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from safetensors.numpy import load_file
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_tensors(Path(folder) / "numbers", {"a": np.arange(3)}, {"unit": "nat"})
    ...     load_file(Path(folder) / "numbers")
    {'a': array([0, 1, 2])}
    """
    little = {name: _little_endian(array) for name, array in arrays.items()}
    order = sorted(little, key=lambda name: (-little[name].itemsize, name))
    header: dict[str, Any] = {"__metadata__": dict(sorted(metadata.items()))}
    end = 0
    for name in order:
        start, end = end, end + little[name].nbytes
        kind = _NAMES.get(little[name].dtype.str)
        if kind is None:
            raise TypeError(f"{name!r} holds {little[name].dtype}, which safetensors does not know")
        header[name] = {"dtype": kind, "shape": little[name].shape, "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % _ALIGNMENT)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(_bytes(little[name]))


def content_digest(arrays: Arrays, metadata: Mapping[str, str]) -> str:
    """Return the SHA-256 digest of arrays, their names, shapes and dtypes, and of metadata.

    >>> content_digest({"a": np.zeros(4)}, {}) == content_digest({"a": np.zeros((2, 2))}, {})
    False
    """
    little = {name: _little_endian(arrays[name]) for name in sorted(arrays)}
    content = [[name, array.dtype.str, array.shape] for name, array in little.items()]
    digest = hashlib.sha256(json.dumps([content, dict(sorted(metadata.items()))]).encode())
    for array in little.values():
        digest.update(_bytes(array))
    return digest.hexdigest()


def _little_endian(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)


def _bytes(array: np.ndarray[Any, Any]) -> memoryview:
    """Return the memory of a contiguous array, also of dtypes that other packages add to NumPy."""
    return array.reshape(-1).view(np.uint8).data
