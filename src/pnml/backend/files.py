"""Files that are either whole or not there."""

from __future__ import annotations

import os
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def atomic_path(target: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path beside ``target``; on success it takes the target's name, on failure it is removed.

    >>> import tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> with atomic_path(Path(folder.name) / "whole.txt") as path:
    ...     _ = path.write_text("all of it")
    >>> (Path(folder.name) / "whole.txt").read_text()
    'all of it'
    >>> folder.cleanup()
    """
    target = Path(target)
    partial = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        partial.touch()
        mode = partial.stat().st_mode  # what the user's umask grants; some writers grant less
        yield partial
        partial.chmod(mode)
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)
