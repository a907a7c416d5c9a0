"""Fingerprints of what a run reads, by which a resumed run notices a change."""

from __future__ import annotations

import hashlib
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.io.paths import PathOrUri, find_parquet_files

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pnml.core.detector import Detector


def fingerprint_path(path: PathOrUri) -> dict[str, Any]:
    """Return the fingerprint of a file of this machine, or of the parquet files in a folder or a store.

    It holds the numbers of files on disks: one that takes the place of another, of the same size and time, has another.
    """
    if isinstance(path, Path) and path.is_file():
        return {**fingerprint_file(path), "number": path.stat().st_ino}
    filesystem, files = find_parquet_files(path)
    is_local = filesystem.type_name == "local"
    listing = [
        (file.path, file.size, file.mtime_ns, Path(file.path).stat().st_ino if is_local else 0) for file in files
    ]
    return _fingerprint_listing(path, listing)


def fingerprint_file(path: Path) -> dict[str, Any]:
    """Return the path, size and modification time of a file."""
    stat = path.stat()
    return {"path": str(path.resolve()), "bytes": stat.st_size, "modified": stat.st_mtime_ns}


def fingerprint_folder(folder: Path, files: Sequence[Path]) -> dict[str, Any]:
    """Return the path of a folder, and a digest of the names, sizes, times and numbers of some files below it."""
    stats = ((file.relative_to(folder).as_posix(), file.stat()) for file in files)
    return _fingerprint_listing(folder, [(name, stat.st_size, stat.st_mtime_ns, stat.st_ino) for name, stat in stats])


def fingerprint_detector(detector: Detector) -> str:
    """Return a digest of the detector's file."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "detector.safetensors"
        detector.save(path)
        return hashlib.sha256(path.read_bytes()).hexdigest()


def digest_rows(ids: Iterable[Any], rows: Any) -> bytes:
    """Return a digest of consecutive rows of an input, by which a resumed run finds those that are as they were.

    The rows are a matrix; or encoded images, which are files or their contents.
    """
    digest = hashlib.sha256()
    for name in ids:
        digest.update(f"{name}\0".encode(errors="surrogateescape"))
    if isinstance(rows, np.ndarray):
        digest.update(f"\0{rows.dtype.str}{rows.shape}".encode())
        digest.update(np.ascontiguousarray(rows).data)
        return digest.digest()
    for row in rows:
        content = row.read_bytes() if isinstance(row, Path) else row
        digest.update(f"{len(content)}\0".encode())
        digest.update(content)
    return digest.digest()


def join_digests(digests: Iterable[bytes]) -> str:
    """Return one digest, as text, of several."""
    return hashlib.sha256(b"".join(digests)).hexdigest()


def _fingerprint_listing(path: PathOrUri, files: Iterable[tuple[str, int, int, int]]) -> dict[str, Any]:
    lines = [f"{name}\0{size}\0{modified}\0{number}\n" for name, size, modified, number in files]
    resolved = str(path.resolve()) if isinstance(path, Path) else path
    return {"path": resolved, "files": len(lines), "listing": hashlib.sha256("".join(lines).encode()).hexdigest()}
