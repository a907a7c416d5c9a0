"""Saved state: one safetensors file with a kind, a version and a digest, read back only if it is what it should be."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from pnml._version import __version__
from pnml.backend.files import atomic_path

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    Arrays = Mapping[str, np.ndarray[Any, Any]]

_DIGEST = "digest"
_UNREADABLE = (SafetensorError, TypeError, AttributeError, ValueError)  # the others come from dtypes unknown to NumPy


def save_state(path: str | os.PathLike[str], kind: str, version: int, arrays: Arrays, info: dict[str, Any]) -> None:
    """Write arrays and a JSON-able ``info`` as one file, atomically; the same content gives the same bytes."""
    metadata = {
        "kind": kind,
        "version": str(version),
        "written_by": f"pnml {__version__}",
        "info": json.dumps(info, allow_nan=False),
    }
    metadata[_DIGEST] = content_digest(arrays, metadata)
    content = save({name: _little_endian(array) for name, array in arrays.items()}, metadata)
    with atomic_path(path) as partial:
        partial.write_bytes(_with_sorted_metadata(content))


def load_state(
    path: str | os.PathLike[str], kind: str, version: int
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Read what :func:`save_state` wrote; a file that is missing, damaged, or of another kind or version is refused."""
    if Path(path).exists() and not Path(path).is_file():
        raise ValueError(f"{path} is no file: expected a {kind} that pnml wrote")
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except _UNREADABLE as error:
        raise ValueError(
            f"{path} is not a whole safetensors file ({error}): expected a {kind} that pnml wrote"
        ) from error
    if metadata.get("kind") != kind:
        raise ValueError(f"{path} holds no {kind} but {metadata.get('kind', 'a file that pnml did not write')}")
    digest = metadata.pop(_DIGEST, None)
    try:
        written = int(metadata["version"])
        writer = metadata["written_by"]
        info = dict(json.loads(metadata["info"], parse_constant=_refuse_constant))
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged, its metadata cannot be read ({error}): write it again") from error
    if written != version:
        raise ValueError(
            f"{path} has {kind} format {written}, written by {writer}; pnml {__version__} reads format {version}: make "
            "it again with this version"
        )
    if digest is None:
        raise ValueError(f"{path} is damaged, it lacks the digest of its content: write it again")
    if digest != content_digest(arrays, metadata):
        raise ValueError(
            f"{path} is damaged, its content does not have the digest that was stored with it: take a copy that is "
            "whole, or write it again"
        )
    return arrays, info


def content_digest(arrays: Arrays, metadata: Mapping[str, str]) -> str:
    """Return the SHA-256 digest of arrays, their names, shapes and dtypes, and of metadata.

    >>> content_digest({"a": np.zeros(4)}, {}) == content_digest({"a": np.zeros((2, 2))}, {})
    False
    """
    little = {name: _little_endian(arrays[name]) for name in sorted(arrays)}
    content = [[name, array.dtype.str, array.shape] for name, array in little.items()]
    digest = hashlib.sha256(json.dumps([content, dict(sorted(metadata.items()))]).encode())
    for array in little.values():
        digest.update(array.reshape(-1).view(np.uint8).data)  # also of dtypes that other packages add to NumPy
    return digest.hexdigest()


def _with_sorted_metadata(content: bytes) -> bytes:
    """Return a safetensors file with its metadata in the order of their keys; the package writes a random one."""
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["__metadata__"] = dict(sorted(header["__metadata__"].items()))
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    return content[:8] + text.ljust(size) + content[8 + size :]


def _little_endian(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a contiguous array."""
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")).reshape(array.shape)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it holds {name}")
