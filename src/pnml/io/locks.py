"""Locks on folders, so that two runs do not write into one; the system frees that of a killed process."""

from __future__ import annotations

import errno
import os
import sys
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from pnml.backend.files import is_at

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_NAME = ".lock"
_TRIES = 1000  # of a folder that others delete at the same time


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
        with suppress(OSError):  # something else is in it, or another run has begun meanwhile
            folder.rmdir()


def _take(folder: Path, path: Path) -> int:
    """Return the open file that is locked."""
    for left in reversed(range(_TRIES)):
        try:
            file = _take_at_once(folder, path)
        except (FileExistsError, FileNotFoundError):
            if not left:
                raise
            continue  # whoever had locked the folder has deleted it meanwhile
        if file is not None:
            return file
    raise ValueError(f"other runs begin and end in {folder} all the time: write to another path")


def _take_at_once(folder: Path, path: Path) -> int | None:
    """Return the open file that is locked; None if whoever had locked it has deleted it meanwhile."""
    if folder.is_file():
        raise ValueError(f"{folder} is a file: expected a folder, or nothing yet")
    folder.mkdir(parents=True, exist_ok=True)
    file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    if not _lock(file):
        os.close(file)
        raise ValueError(f"another run writes to {folder}: wait until it ends, or write to another path")
    if is_at(path, file):
        return file
    os.close(file)
    return None


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
