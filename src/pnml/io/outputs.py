"""Refuse to write over what is read, and where nothing can be written, before any work is done."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pnml.backend.files import check_writable
from pnml.io.images import SUFFIXES
from pnml.io.paths import PathOrUri, resolve

if TYPE_CHECKING:
    from collections.abc import Iterator

_READ = {".parquet", ".json", ".npz", *SUFFIXES}  # what commands read from folders


def check_output(out: PathOrUri, *inputs: PathOrUri | None, is_folder: bool = False) -> None:
    """Raise ``ValueError`` if writing to ``out`` would change an input, ``PermissionError`` if it cannot be written.

    An input would be changed if both are the same file, by whatever name, symbolic or hard link, if ``out`` is one of
    the files that are read from a folder, or would be a new parquet among them, and if one folder is inside the other.

    Args:
        out: the file or folder to write.
        *inputs: files and folders that are read; None for those that were not given.
        is_folder: whether ``out`` is, or will be, a folder.

    >>> check_output(Path("scores.csv"), Path("new.csv"), None)
    >>> check_output("s3://bucket/scores", "s3://bucket/scores/", is_folder=True)
    Traceback (most recent call last):
        ...
    ValueError: s3://bucket/scores would be written over s3://bucket/scores/, which is read: write to another path
    """
    for source in inputs:
        if source is not None and _would_change(out, source, is_folder=is_folder):
            raise ValueError(f"{out} would be written over {source}, which is read: write to another path")
    if (local := _local(out)) is not None:
        check_writable(local / "file" if is_folder else local)


def _would_change(out: PathOrUri, source: PathOrUri, *, is_folder: bool) -> bool:
    target, given = _local(out), _local(source)
    if target is None or given is None:
        return target is given and _are_nested(str(out), str(source))
    real = target.resolve()
    if given.is_file():
        return _are_same(target, given) or real in given.resolve().parents
    if is_folder:
        return _are_nested(str(real), str(given.resolve()))
    if real.suffix == ".parquet" and given.resolve() in real.parents:
        return True
    return target.exists() and any(_are_same(target, file) for file in _files_read(given))


def _local(path: PathOrUri) -> Path | None:
    """Return a path of this machine; None for one in a store."""
    if isinstance(path, Path):
        return path
    return Path(resolve(path)[1]) if path.startswith("file://") else None


def _are_nested(one: str, other: str) -> bool:
    """Return whether two paths are the same, or one is a folder above the other."""
    upper, lower = sorted((one.rstrip("/") + "/", other.rstrip("/") + "/"), key=len)
    return lower.startswith(upper)


def _are_same(target: Path, file: Path) -> bool:
    if target.exists() and file.exists():
        return target.samefile(file)
    return target.resolve() == file.resolve()


def _files_read(folder: Path) -> Iterator[Path]:
    for parent, _, names in os.walk(folder):
        yield from (Path(parent, name) for name in names if Path(name).suffix.lower() in _READ)
