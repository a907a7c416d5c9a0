"""Embeddings in a file, of any of the formats people keep them in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.io.chunk import Chunk
from pnml.io.numpy_files import open_npy, open_npz
from pnml.io.parquet_files import open_embeddings_parquet
from pnml.io.stamp import file_stamp

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pnml.io.stored import Stored

CHUNK_BYTES = 1 << 25
"""How much memory a chunk may take, as float64."""

_OPENERS: dict[str, Callable[[Path], Stored]] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".parquet": open_embeddings_parquet,
}


@dataclass(frozen=True)
class EmbeddingFile:
    """Embeddings of shape (N, M) in a file, read in chunks of bounded memory.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "train.npy", np.eye(3))
    ...     samples = open_embeddings(Path(folder) / "train.npy")
    ...     [chunk.embeddings.shape for chunk in samples.chunks()]
    [(3, 3)]
    """

    path: Path
    stored: Stored

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self.stored.count

    @property
    def chunk_rows(self) -> int:
        """How many of them are read at a time."""
        return max(1, CHUNK_BYTES // (8 * self.stored.width))

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows from ``start`` on."""
        for ids, rows in self.stored.read(start, self.chunk_rows):
            positions = np.arange(start, start + len(rows))
            start += len(rows)
            yield Chunk(start, positions, positions if ids is None else ids, rows)

    def stamp(self) -> dict[str, Any]:
        """Say which file is read."""
        return {"input": file_stamp(self.path)}


def open_embeddings(path: Path) -> EmbeddingFile:
    """Open an ``.npy``, ``.npz`` or ``.parquet`` file of embeddings."""
    if path.suffix not in _OPENERS:
        raise ValueError(f"{path} is no file of embeddings: expected one of {', '.join(_OPENERS)}")
    stored = _OPENERS[path.suffix](path)
    if stored.count == 0 or stored.width == 0:
        raise ValueError(f"{path} is empty: {stored.count} rows of {stored.width} features")
    return EmbeddingFile(path, stored)
