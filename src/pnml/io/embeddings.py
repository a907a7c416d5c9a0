"""Embeddings in files, of any of the formats people keep them in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.io.chunk import Chunk
from pnml.io.fingerprint import fingerprint_path
from pnml.io.numpy_files import open_npy, open_npz
from pnml.io.parquet_files import open_embeddings_parquet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pnml.io.paths import PathOrUri
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
    """Embeddings of shape (N, M) in a file or a folder of files, read in chunks of bounded memory.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.save(Path(folder) / "train.npy", np.eye(3))
    ...     samples = open_embeddings(Path(folder) / "train.npy")
    ...     [chunk.embeddings.shape for chunk in samples.chunks()]
    [(3, 3)]
    """

    path: PathOrUri
    stored: Stored
    chunk_rows: int

    @property
    def count(self) -> int:
        """How many rows there are."""
        return self.stored.count

    @property
    def starts(self) -> tuple[int, ...]:
        """The rows from which reading can begin without reading what comes before; any row when empty."""
        return self.stored.starts

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows from ``start`` on."""
        for ids, rows in self.stored.read(start, self.chunk_rows):
            positions = np.arange(start, start + len(rows))
            start += len(rows)
            yield Chunk(start, positions, positions if ids is None else ids, rows)

    def fingerprint(self) -> dict[str, Any]:
        """Say which file is read."""
        return {"input": fingerprint_path(self.path)}


def open_embeddings(path: PathOrUri) -> EmbeddingFile:
    """Open embeddings: an ``.npy``, ``.npz`` or ``.parquet`` file, a folder of ``.parquet`` files, or a URI of parquet.

    The files of a folder are one table, in the order of their paths.
    """
    if isinstance(path, str) or path.is_dir():
        stored = open_embeddings_parquet(path)
    elif path.suffix in _OPENERS:
        stored = _OPENERS[path.suffix](path)
    else:
        raise ValueError(f"{path} is no file of embeddings: expected one of {', '.join(_OPENERS)}, or a folder")
    if stored.count == 0 or stored.width == 0:
        raise ValueError(f"{path} is empty: {stored.count} rows of {stored.width} features")
    return EmbeddingFile(path, stored, chunk_rows=max(1, CHUNK_BYTES // (8 * stored.width)))
