"""The rows of an input: what a file format has to provide, and the chunks of embeddings that a detector is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import namespace, to_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from pnml.backend.arrays import Array
    from pnml.io.paths import PathOrUri


@dataclass(frozen=True)
class RowReader:
    """The rows of a file: embeddings, or encoded images.

    Attributes:
        path: the file or folder.
        count: the number N of rows.
        read: ``read(start, size)`` yields the rows from ``start`` on, ``size`` at a time (fewer only at the end), as
            pairs of ids (row numbers where the file has none) and rows.
        fingerprint: returns what identifies the file and its content, to notice a change between two runs.
        starts: the rows from which reading can begin without reading earlier ones; any row when empty.
        width: the number M of features of an embedding; 0 for images.
    """

    path: PathOrUri
    count: int
    read: Callable[[int, int], Iterator[tuple[NDArray[Any], Any]]]
    fingerprint: Callable[[], dict[str, Any]]
    starts: tuple[int, ...] = ()
    width: int = 0


@dataclass(frozen=True)
class Chunk:
    """The embeddings of consecutive rows of a file.

    Attributes:
        stop: the position after the last row that was read.
        positions: the positions of the embeddings in the file, counted from 0, shape (n,).
        ids: their ids in the file, or their positions, shape (n,).
        embeddings: shape (n, M); n is 0 when every image of the chunk was skipped.
        logits: the model's own logits, shape (n, C); None where no model ran.
        skipped: the ids of the images that do not decode.
    """

    stop: int
    positions: NDArray[np.int64]
    ids: NDArray[Any]
    embeddings: Array
    logits: Array | None = None
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True)
class Samples(ABC):
    """Embeddings in a file, or images and the model that embeds them: read in order, a chunk at a time.

    Attributes:
        reader: the rows of the file.
        chunk_rows: the number of rows of a chunk; the last one may have fewer.
    """

    reader: RowReader
    chunk_rows: int

    @property
    def path(self) -> PathOrUri:
        """The file or folder."""
        return self.reader.path

    @property
    def count(self) -> int:
        """The number of samples, images that do not decode included."""
        return self.reader.count

    @abstractmethod
    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        """Yield the samples from row ``start`` on."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the input and its processing, to notice a change between two runs."""


@contextmanager
def locate_errors(chunk: Chunk, path: PathOrUri) -> Iterator[None]:
    """Name the row in the file, and its id, when the work on a chunk raises for a value that is not finite."""
    try:
        yield
    except ValueError as error:
        x = chunk.embeddings
        bad = np.argwhere(~to_numpy(namespace(x).isfinite(x), bool))
        if not len(bad):
            raise
        row, column = bad[0]
        position, name = chunk.positions[row], chunk.ids[row]
        named = "" if name == position else f" (id {name})"
        raise ValueError(
            f"row {position} of {path}, counted from 0{named}, holds {float(x[row, column])} in column {column}: "
            "repair it"
        ) from error
