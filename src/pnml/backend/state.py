"""Saved state: one safetensors file with a kind and a version, read back only if it is what it should be."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from pnml._version import __version__
from pnml.backend.files import atomic_path

if TYPE_CHECKING:
    import os


def save_state(
    path: str | os.PathLike[str],
    kind: str,
    version: int,
    arrays: dict[str, np.ndarray[Any, Any]],
    info: dict[str, Any],
) -> None:
    """Write arrays and a JSON-able ``info`` as one file, atomically."""
    metadata = {
        "kind": kind,
        "version": str(version),
        "written_by": f"pnml {__version__}",
        "info": json.dumps(info),
    }
    with atomic_path(path) as partial:
        try:
            save_file({name: np.ascontiguousarray(a) for name, a in arrays.items()}, partial, metadata)
        except SafetensorError as error:
            raise OSError(f"could not write {path}: {error}") from error


def load_state(
    path: str | os.PathLike[str], kind: str, version: int
) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
    """Read what :func:`save_state` wrote; a missing, foreign, truncated or newer file is refused by name."""
    try:
        with safe_open(path, framework="numpy") as file:
            metadata = file.metadata() or {}
            arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except SafetensorError as error:
        raise ValueError(
            f"{path} is not a whole safetensors file ({error}): expected a {kind} that pnml wrote"
        ) from error
    if metadata.get("kind") != kind:
        raise ValueError(f"{path} holds no {kind} but {metadata.get('kind', 'a file that pnml did not write')}")
    try:
        found, writer, info = int(metadata["version"]), metadata["written_by"], json.loads(metadata["info"])
    except (KeyError, ValueError) as error:
        raise ValueError(f"{path} is damaged, its metadata cannot be read ({error}): write it again") from error
    if found > version:
        raise ValueError(
            f"{path} has {kind} format {found}, written by {writer}; pnml {__version__} reads up to format {version}: "
            "pip install -U pnml"
        )
    return arrays, info
