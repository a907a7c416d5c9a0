"""Files that are either whole or not there.

Every file of the package is written by :func:`atomic_path`: under a temporary name of its own beside the file that it
becomes, flushed to the disk, then renamed, which is one step for every reader. A writer that dies leaves its temporary
file, and no other harm; a day later the next one deletes it.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_TEMPORARY = re.compile(r"\..+\.pnml-.+\.partial")
_LONGEST = 50  # letters of a target's name in that of its temporary file
_ABANDONED = 86_400  # seconds since the last byte was written: no writer that lives is so slow


@contextmanager
def atomic_path(target: str | os.PathLike[str], *, sweep: bool = True) -> Iterator[Path]:
    """Yield a temporary path beside ``target``; on success it takes the target's name, on failure it is removed.

    A file that exists keeps its mode. A symbolic link stays one, and the file that it points to is replaced.

    Args:
        target: the file to write, which need not exist; its folder must.
        sweep: delete what dead writers left in that folder, see :func:`delete_leftovers`.

    Raises:
        OSError: there is no such folder, no file can be made in it, or the disk is full; it has the name of the target.
        ValueError: the target exists and is no file.
    """
    mode = _existing_mode(Path(target))
    final = Path(os.path.realpath(target))
    if not final.parent.is_dir():
        raise FileNotFoundError(f"cannot write {target}, there is no folder {final.parent}: mkdir -p {final.parent}")
    check_writable(final)
    if sweep:
        delete_leftovers(final.parent)
    partial = final.with_name(f".{final.name[:_LONGEST]}.pnml-{secrets.token_hex(8)}.partial")
    os.close(os.open(partial, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666 if mode is None else 0o600))
    try:
        if mode is None:
            mode = stat.S_IMODE(partial.stat().st_mode)  # what the user's umask grants; some writers grant less
        yield partial
        with partial.open("r+b") as file:
            os.fsync(file.fileno())
        partial.chmod(mode)
        partial.replace(final)
    except OSError as error:
        if error.errno == errno.ENOSPC:
            raise OSError(error.errno, os.strerror(error.errno), str(target)) from error
        raise
    finally:
        partial.unlink(missing_ok=True)


def check_writable(target: str | os.PathLike[str]) -> None:
    """Raise ``PermissionError`` if no file can be made where ``target`` is to be written: better now than after hours.

    Its folder need not exist; then the nearest one above it counts.
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
    """Delete the temporary files of :func:`atomic_path` in a folder that nobody has written to for a day."""
    with suppress(OSError):  # a folder that may not be listed, a file that another run deletes meanwhile
        for file in folder.iterdir():
            if _TEMPORARY.fullmatch(file.name):
                status = file.lstat()
                if stat.S_ISREG(status.st_mode) and time.time() - status.st_mtime > _ABANDONED:
                    file.unlink()


def _existing_mode(target: Path) -> int | None:
    """Return the mode of a file, None where there is none; links are followed where the system lets them be."""
    try:
        status = target.stat()
    except FileNotFoundError:
        return None
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "no regular file"
        raise ValueError(f"cannot write {target}, which is {kind}: give the path of a file")
    return stat.S_IMODE(status.st_mode)
