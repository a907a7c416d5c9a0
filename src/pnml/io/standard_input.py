"""Embeddings that come on standard input: kept in a temporary file, because they are counted before they are read."""

from __future__ import annotations

import shutil
import weakref
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from pnml.io.embeddings import EmbeddingFile

_NAME = Path("standard input")
_SUFFIXES = {b"\x93NUMPY": ".npy", b"PK\x03\x04": ".npz"}  # by the first bytes
_OTHERS = {b"PAR1": "parquet", b"\x1f\x8b": "gzip"}


def open_standard_input(stream: IO[bytes], open_file: Callable[[Path], EmbeddingFile]) -> EmbeddingFile:
    """Read a stream of ``.npy``, ``.npz`` or CSV, told by its first bytes, to its end, and open its embeddings.

    ``open_file`` opens the copy on disk, which is deleted with the last reference to what is returned.
    """
    begin = stream.read(6)
    for magic, other in _OTHERS.items():
        if begin.startswith(magic):
            raise ValueError(f"{_NAME} is {other}: expected .npy, .npz or CSV; write it to a file and give its path")
    suffix = next((suffix for magic, suffix in _SUFFIXES.items() if begin.startswith(magic)), ".csv")
    folder = Path(mkdtemp(prefix="pnml-"))
    path = folder / f"stdin{suffix}"

    def read(start: int, size: int) -> Iterator[tuple[NDArray[Any], Any]]:
        with _renamed(path):
            yield from samples.reader.read(start, size)

    weakref.finalize(read, shutil.rmtree, folder, ignore_errors=True)
    with path.open("wb") as file:
        file.write(begin)
        shutil.copyfileobj(stream, file)
    with _renamed(path):
        samples = open_file(path)
    return replace(samples, reader=replace(samples.reader, path=_NAME, read=read))


@contextmanager
def _renamed(path: Path) -> Iterator[None]:
    """Name standard input in messages, not the file that holds a copy of it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(str(error).replace(str(path), str(_NAME))) from error
