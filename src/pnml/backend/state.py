"""Saved state: one safetensors file with a kind, a version and a digest, read back only if it is what it should be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from pnml._version import __version__
from pnml.backend.files import atomic_path
from pnml.backend.tensor_files import content_digest, write_tensors

if TYPE_CHECKING:
    import os

    import numpy as np

_DIGEST = "digest"
_UNREADABLE = (SafetensorError, TypeError, AttributeError, ValueError)  # the others come from dtypes unknown to NumPy


def save_state(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    arrays: dict[str, np.ndarray[Any, Any]],
    info: dict[str, Any],
) -> None:
    """Write arrays and a JSON-able ``info`` as one file, atomically; the same content gives the same bytes."""
    metadata = {
        "kind": kind,
        "version": str(version),
        "written_by": f"pnml {__version__}",
        "info": json.dumps(info, allow_nan=False),
    }
    metadata[_DIGEST] = content_digest(arrays, metadata)
    with atomic_path(path) as partial:
        write_tensors(partial, arrays, metadata)


def load_state(
    path: str | os.PathLike[str], kind: str, version: int
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Read what :func:`save_state` wrote; a missing, foreign, truncated or changed file is refused by name.

    Args:
        path: the file.
        kind: which it must be of.
        version: the only one that can be read.
    """
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
    stored = metadata.pop(_DIGEST, None)
    try:
        found, writer = int(metadata["version"]), metadata["written_by"]
        info = dict(json.loads(metadata["info"], parse_constant=_refuse_constant))
    except (KeyError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is damaged, its metadata cannot be read ({error}): write it again") from error
    if found != version:
        raise ValueError(
            f"{path} has {kind} format {found}, written by {writer}; pnml {__version__} reads format {version}: make "
            "it again with this version"
        )
    if stored is None:
        raise ValueError(f"{path} is damaged, it lacks the digest of its content: write it again")
    if stored != content_digest(arrays, metadata):
        raise ValueError(
            f"{path} is damaged, its content does not have the digest that was stored with it: take a copy that is "
            "whole, or write it again"
        )
    return arrays, info


def _refuse_constant(name: str) -> float:
    raise ValueError(f"it holds {name}")
