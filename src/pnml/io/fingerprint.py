"""What a file was when it was read, so that a run that goes on later notices a change."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pnml.io.paths import PathOrUri, parquet_files_at

if TYPE_CHECKING:
    from collections.abc import Sequence


def fingerprint_path(place: PathOrUri) -> dict[str, Any]:
    """What is at a place: a file of this machine, or parquet files in a folder or a store."""
    if isinstance(place, Path) and place.is_file():
        return fingerprint_file(place)
    _, files = parquet_files_at(place)
    digest = hashlib.sha256()
    for file in files:
        digest.update(f"{file.path}\0{file.size}\0{file.mtime_ns}\n".encode())
    where = str(place.resolve()) if isinstance(place, Path) else place
    return {"path": where, "files": len(files), "listing": digest.hexdigest()}


def fingerprint_file(path: Path) -> dict[str, Any]:
    """Where a file is, how large, and when it was last written."""
    stat = path.stat()
    return {"path": str(path.resolve()), "bytes": stat.st_size, "modified": stat.st_mtime_ns}


def fingerprint_folder(folder: Path, files: Sequence[Path]) -> dict[str, Any]:
    """Where a folder is, how many files of it are read, and a digest of their names, sizes and times."""
    digest = hashlib.sha256()
    for file in files:
        stat = file.stat()
        digest.update(f"{file.relative_to(folder).as_posix()}\0{stat.st_size}\0{stat.st_mtime_ns}\n".encode())
    return {"path": str(folder.resolve()), "files": len(files), "listing": digest.hexdigest()}


def content_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes."""
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
