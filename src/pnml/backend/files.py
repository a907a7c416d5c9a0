"""Files that are either whole or not there.

Every file of the package is written by :func:`atomic_path`: under a temporary name of its own beside the file that it
becomes, flushed to the disk, then renamed, which is one step for every reader. A writer that dies leaves its temporary
file, and no other harm; the next one deletes it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEMPORARY = re.compile(r"\..+\.pnml-\d+-[0-9a-f]{16}\.partial")
_LONGEST = 50  # letters of a target's name in that of its temporary file
_CANNOT_FLUSH = {errno.EINVAL, errno.ENOTSUP, errno.ENOSYS, errno.EACCES, errno.EPERM, errno.EBADF}
_IS_POSIX = os.name == "posix"  # elsewhere there are no locks to know the dead by, and no folders to flush


@contextmanager
def atomic_path(target: str | os.PathLike[str], *, sweep: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``target``; on success it takes the target's name, on failure it is removed.

    What is written there must be written into the file that exists, not into another that is renamed to it. A file that
    exists keeps its mode. A symbolic link stays one, and the file that it points to is replaced.

    Args:
        target: the file to write, which need not exist; its folder must.
        sweep: delete what dead writers left in that folder, see :func:`delete_leftovers`.

    Raises:
        FileNotFoundError: there is no such folder.
        PermissionError: no file can be made in it.
        ValueError: the target exists and is no file.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with atomic_path(Path(folder.name) / "whole.txt") as path:
    ...     _ = path.write_text("all of it")
    >>> (Path(folder.name) / "whole.txt").read_text()
    'all of it'
    >>> folder.cleanup()
    """
    mode = _existing_mode(Path(target))
    final = Path(os.path.realpath(target))
    if not final.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}, there is no folder {final.parent}: mkdir -p {final.parent}")
    check_writable(final)
    if sweep:
        delete_leftovers(final.parent)
    with _temporary_file(final, private=mode is not None) as partial:
        if mode is None:
            mode = stat.S_IMODE(partial.stat().st_mode)  # what the user's umask grants; some writers grant less
        yield partial
        with partial.open("r+b") as file:
            partial.chmod(mode)
            os.fsync(file.fileno())
        partial.replace(final)
        _flush_folder(final.parent)


def check_writable(target: str | os.PathLike[str]) -> None:
    """Raise ``PermissionError`` if no file can be made where ``target`` is to be written: better now than after hours.

    Its folder need not exist; then the nearest one above it counts.

    >>> check_writable("scores.csv")
    """
    folder = Path(os.path.realpath(target)).parent
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    if folder.is_dir() and not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(
            f"cannot write {target}: the folder {folder} is read-only, or not yours to write to: give a path in another"
        )


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text file, atomically, and return its path; missing folders are created."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def delete_leftovers(folder: Path) -> None:
    """Delete the temporary files of :func:`atomic_path` in a folder whose writers are dead, and nothing else.

    A writer holds a lock on its temporary file as long as it lives, on this machine or on another. Where the file
    system has no locks, nothing is deleted.
    """
    if not _IS_POSIX:
        return
    with suppress(OSError):  # a folder that may not be listed
        for name in os.listdir(folder):  # noqa: PTH208 - names are all that is needed
            if _TEMPORARY.fullmatch(name):
                with suppress(OSError):  # of a writer that lives, or finished meanwhile
                    _delete_if_abandoned(folder / name)


def _existing_mode(target: Path) -> int | None:
    """Return the mode of a file, None where there is none; links are followed where the system lets them be."""
    try:
        found = target.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(found.st_mode):
        what = "a folder" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise ValueError(f"cannot write {target}, which is {what}: give the path of a file")
    return stat.S_IMODE(found.st_mode)


@contextmanager
def _temporary_file(final: Path, *, private: bool) -> Iterator[Path]:
    """Yield a new, locked file beside ``final``, of a name that nobody else has; delete it if it is still there."""
    held = -1
    while held < 0:
        path = final.with_name(f".{final.name[:_LONGEST]}.pnml-{os.getpid()}-{secrets.token_hex(8)}.partial")
        held = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600 if private else 0o666)
        with suppress(OSError):  # file systems without locks
            _lock(held, wait=True)
        if not is_at(path, held):  # taken for a leftover before it was locked
            os.close(held)
            held = -1
    if not _IS_POSIX:
        os.close(held)  # an open file could not be renamed
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)
        if _IS_POSIX:
            os.close(held)


def _delete_if_abandoned(path: Path) -> None:
    """Delete a temporary file; raise ``OSError`` if its writer holds the lock."""
    found = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        _lock(found, wait=False)
        if stat.S_ISREG(os.fstat(found).st_mode) and is_at(path, found):
            path.unlink()
    finally:
        os.close(found)


def _lock(descriptor: int, *, wait: bool) -> None:
    """Lock an open file until it is closed or the process ends; raise ``OSError`` if another holds it, or wait."""
    if _IS_POSIX:
        import fcntl

        fcntl.flock(descriptor, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))


def is_at(path: Path, descriptor: int) -> bool:
    """Return whether an open file is the one at a path."""
    try:
        return os.path.samestat(path.lstat(), os.fstat(descriptor))
    except FileNotFoundError:
        return False


def _flush_folder(folder: Path) -> None:
    """Make a rename outlast a loss of power, on file systems that can."""
    if not _IS_POSIX:
        return
    try:
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        if error.errno not in _CANNOT_FLUSH:
            raise
