"""Refuse to write over what is read, and where nothing can be written, before any work is done."""

from __future__ import annotations

from pathlib import Path

from pnml.backend.files import check_writable
from pnml.io.images import SUFFIXES
from pnml.io.paths import PathOrUri, resolve

_READ = {".parquet", ".json", ".npz", *SUFFIXES}  # what commands read from folders


def check_output(out: PathOrUri, *inputs: PathOrUri | None, is_folder: bool = False) -> None:
    """Raise ``ValueError`` if writing to ``out`` would change an input, ``PermissionError`` if it cannot be written.

    An input would be changed if both are the same file, if ``out`` is one of the files that are read from a folder, or
    would be a new parquet among them, and if one folder is inside the other; symbolic links are followed. Another hard
    link to an input may be written: a file that is replaced leaves the others as they are.

    Args:
        out: the file or folder to write.
        *inputs: files and folders that are read; None for those that were not given.
        is_folder: whether ``out`` is, or will be, a folder.
    """
    for source in inputs:
        if source is not None and _would_change(out, source, is_folder=is_folder):
            raise ValueError(f"{out} would be written over {source}, which is read: write to another path")
    local = _local(out)
    if local is not None:
        check_writable(local / "file" if is_folder else local)


def _would_change(out: PathOrUri, source: PathOrUri, *, is_folder: bool) -> bool:
    target = _local(out)
    original = _local(source)
    if target is None or original is None:
        return target is original and _are_nested(str(out), str(source))
    if is_folder or original.is_file():
        return _are_nested(str(target), str(original))
    is_read = target.suffix == ".parquet" or (target.exists() and target.suffix.lower() in _READ)
    return is_read and original in target.parents


def _local(path: PathOrUri) -> Path | None:
    """Return a path of this machine, without links; None for one in a store."""
    if isinstance(path, Path):
        return path.resolve()
    return Path(resolve(path)[1]).resolve() if path.startswith("file://") else None


def _are_nested(one: str, other: str) -> bool:
    """Return whether two paths are the same, or one is a folder above the other."""
    upper, lower = sorted((one.rstrip("/") + "/", other.rstrip("/") + "/"), key=len)
    return lower.startswith(upper)
