"""The rows of an input: what a file format has to provide, and the chunks of embeddings that a detector is given."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import namespace, to_numpy
from pnml.backend.read_errors import naming_file
from pnml.io.fingerprint import digest_rows, fingerprint_path, join_digests

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from pnml.backend.arrays import Array
    from pnml.io.paths import PathOrUri


@dataclass(frozen=True)
class RowReader:
    """The rows of a file: embeddings, or encoded images.

    Attributes:
        path: the file or folder.
        count: the number N of rows.
        read: ``read(start, size)`` yields the rows from ``start`` on, ``size`` at a time, as pairs of ids (row numbers
            where the file has none) and rows. Fewer come at the end; and of very long ids fewer at a time, but so that
            no piece goes on beyond a multiple of ``size`` from ``start``.
        starts: the rows from which reading can begin without reading earlier ones; any row when empty.
        width: the number M of features of an embedding; 0 for images.
        layers: names and widths of the earlier layers whose features follow the embedding in every row.
        columns: the names of the array or columns that the embedding is made of, where they have names.
        id_bytes: the size of a row's id in the file, on average; 0 for row numbers.
        fingerprint: returns what identifies the file and its content, to notice a change between two runs; by default
            that of the file or folder.
        opened: the fingerprint when the file was opened.
    """

    path: PathOrUri
    count: int
    read: Callable[[int, int], Iterator[tuple[NDArray[Any], Any]]]
    starts: tuple[int, ...] = ()
    width: int = 0
    layers: tuple[tuple[str, int], ...] = ()
    columns: tuple[str, ...] = ()
    id_bytes: int = 0
    fingerprint: Callable[[], dict[str, Any]] = None  # type: ignore[assignment]
    opened: dict[str, Any] = field(init=False)

    def __post_init__(self) -> None:
        if self.fingerprint is None:
            object.__setattr__(self, "fingerprint", partial(fingerprint_path, self.path))
        object.__setattr__(self, "opened", self.fingerprint())

    @property
    def widths(self) -> tuple[int, ...]:
        """The width of the embedding, followed by those of the earlier layers."""
        return self.width, *(width for _, width in self.layers)

    @property
    def feature_names(self) -> tuple[str, ...]:
        """The columns where there is one for every feature; empty for an array, or a column of lists."""
        return self.columns if len(self.columns) == self.width > 1 else ()


def naming_its_file(reader: RowReader) -> RowReader:
    """Return a reader of the same rows that raises ``ValueError`` with the file's name for what it cannot decode."""

    def read(start: int, size: int) -> Iterator[tuple[NDArray[Any], Any]]:
        with naming_file(reader.path):
            yield from reader.read(start, size)

    return replace(reader, read=read)


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
        features: of earlier layers, one array of shape (n, features of that layer) for each.
        digest: returns a digest of what was read; see :func:`~pnml.io.fingerprint.digest_rows`.
    """

    stop: int
    positions: NDArray[np.int64]
    ids: NDArray[Any]
    embeddings: Array
    logits: Array | None = None
    skipped: tuple[str, ...] = ()
    features: tuple[Array, ...] = ()
    digest: Callable[[], bytes] = bytes


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

    @property
    @abstractmethod
    def layer_names(self) -> tuple[str, ...]:
        """The names of the earlier layers whose features chunks carry."""

    @property
    def preparation_record(self) -> dict[str, Any] | None:
        """How samples become embeddings, to be kept with a detector; None where there is nothing to say."""
        return None

    @abstractmethod
    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        """Yield the samples from row ``start`` on."""

    @abstractmethod
    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the input and its processing, to notice a change between two runs."""

    def digest(self, start: int, stop: int) -> str:
        """Return a digest of the rows from ``start`` to before ``stop``, which are read, but not embedded."""
        digests: list[bytes] = []
        for ids, rows in self.reader.read(start, self.chunk_rows):
            digests.append(digest_rows(ids, rows))
            start += len(ids)
            if start >= stop:
                break
        return join_digests(digests)


@contextmanager
def locate_errors(chunk: Chunk, path: PathOrUri, layer_names: Sequence[str] = ()) -> Iterator[None]:
    """Name the row in the file, and its id, when the work on a chunk raises for a value that is not finite."""
    try:
        yield
    except ValueError as error:
        for number, x in enumerate((chunk.embeddings, *chunk.features)):
            bad = np.argwhere(~to_numpy(namespace(x).isfinite(x), bool))
            if not len(bad):
                continue
            row, column = bad[0]
            position = chunk.positions[row]
            name = chunk.ids[row]
            named = "" if name == position else f" (id {name})"
            layer = ""
            if number:
                is_named = number <= len(layer_names)
                layer = f" of the features of {repr(layer_names[number - 1]) if is_named else f'layer {number - 1}'}"
            raise ValueError(
                f"row {position} of {path}, counted from 0{named}, holds {float(x[row, column])} in column "
                f"{column}{layer}: fill it in, or leave the row out"
            ) from error
        raise
