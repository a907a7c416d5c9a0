"""Locks on folders, so that two runs do not write into one; the system frees that of a killed process."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAME = ".lock"


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder, which is created if needed; raise ``ValueError`` if another process or thread has locked it.

    On exit the file that is locked is deleted, and the folder, too, if nothing else is in it.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as name, lock_folder(Path(name)), lock_folder(Path(name)):
    ...     pass
    Traceback (most recent call last):
        ...
    ValueError: another run writes to ...: wait until it ends, or write to another path
    """
    path = folder / _NAME
    file = _take(folder, path)
    try:
        yield
    finally:
        path.unlink(missing_ok=True)
        os.close(file)
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()


def _take(folder: Path, path: Path) -> int:
    """Return the open file that is locked."""
    while True:
        if folder.is_file():
            raise ValueError(f"{folder} is a file: expected a folder, or nothing yet")
        folder.mkdir(parents=True, exist_ok=True)
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if not _lock(file):
            os.close(file)
            raise ValueError(f"another run writes to {folder}: wait until it ends, or write to another path")
        if path.exists() and os.path.samestat(os.fstat(file), path.stat()):
            return file
        os.close(file)  # whoever had locked the file has deleted it meanwhile


def _lock(file: int) -> bool:
    """Lock an open file at once; return whether nobody else has. Where a disk has no locks, nobody has."""
    try:
        if sys.platform == "win32":
            import msvcrt

            msvcrt.locking(file, msvcrt.LK_NBLCK, 1)
        else:
            import fcntl

            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in {errno.EAGAIN, errno.EACCES, errno.EDEADLK}
    return True
