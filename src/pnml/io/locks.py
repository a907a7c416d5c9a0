"""Locks on folders, so that two runs do not write into one; the system frees that of a killed process."""

from __future__ import annotations

from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Lock a folder, which is created if needed; raise ``ValueError`` if another process or thread has locked it.

    On exit the file that is locked is deleted, and the folder, too, if nothing else is in it.
    """
    if folder.is_file():
        raise ValueError(f"{folder} is a file: expected a folder, or nothing yet")
    path = folder / ".lock"
    lock = FileLock(path, timeout=0)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except (Timeout, FileExistsError, FileNotFoundError):  # the latter where another run deletes the folder just now
        raise ValueError(f"another run writes to {folder}: wait until it ends, or write to another path") from None
    try:
        yield
    finally:
        with suppress(OSError):  # on Windows, where the file goes with the lock
            path.unlink()
        lock.release()
        with suppress(OSError):  # something else is in it, or another run has begun meanwhile
            folder.rmdir()
