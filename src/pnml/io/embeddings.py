"""Embeddings in files of any supported format."""

from __future__ import annotations

import shutil
import weakref
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import mkdtemp
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from pnml.backend.read_errors import names_its_file
from pnml.io.csv_files import open_csv
from pnml.io.feature_columns import list_names, match_columns
from pnml.io.fingerprint import digest_rows
from pnml.io.numpy_files import open_npy, open_npz
from pnml.io.parquet_files import open_embeddings_parquet
from pnml.io.pickles import refuse_pickle
from pnml.io.preparation import columns_of
from pnml.io.source import Chunk, Samples, naming_its_file

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    from pnml.io.paths import PathOrUri
    from pnml.io.preparation import Record
    from pnml.io.source import RowReader

CHUNK_BYTES = 1 << 25
"""The memory that a chunk may take, as float64."""

_STANDARD_INPUT = Path("standard input")
_SUFFIXES = {b"\x93NUMPY": ".npy", b"PK\x03\x04": ".npz"}  # by the first bytes
_OTHERS = {b"PAR1": "parquet", b"\x1f\x8b": "gzip"}

_OPENERS: dict[str, Callable[[Path, Sequence[str] | None, Sequence[str] | None], RowReader]] = {
    ".npy": open_npy,
    ".npz": open_npz,
    ".csv": open_csv,
    ".parquet": open_embeddings_parquet,
}


@dataclass(frozen=True)
class EmbeddingFile(Samples):
    """Embeddings (N, M), and features of earlier layers if there are any; ``columns`` are those that were asked for."""

    columns: tuple[str, ...] = ()

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The names of the layers whose features the file holds, those that were not asked for left out."""
        return tuple(name for name, _ in self.reader.layers)

    @property
    def preparation_record(self) -> dict[str, Any] | None:
        """The columns that were asked for, or else those of the features; None where features have no names."""
        if self.columns:
            return {"columns": list(self.reader.columns)}
        names = self.reader.feature_names
        return {"columns": list(names), "all": True} if names else None

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        """Yield the rows from ``start`` on."""
        ends = np.cumsum(self.reader.widths)[:-1]
        for ids, rows in self.reader.read(start, self.chunk_rows):
            positions = np.arange(start, start + len(rows))
            start += len(rows)
            embeddings, *features = np.split(rows, ends, axis=1)
            digest = partial(digest_rows, ids, rows)
            yield Chunk(start, positions, ids, embeddings, features=tuple(features), digest=digest)

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the file."""
        return {"input": {**self.reader.fingerprint(), "columns": list(self.reader.columns)}}


def _open(path: PathOrUri, layers: Sequence[str] | None, columns: Sequence[str] | None) -> RowReader:
    if isinstance(path, str) or path.is_dir():
        return open_embeddings_parquet(path, layers, columns)
    suffix = path.suffix.lower()
    if suffix not in _OPENERS:
        refuse_pickle(path, "embeddings")
        raise ValueError(f"{path} is no file of embeddings: expected one of {', '.join(_OPENERS)}, or a folder")
    return _OPENERS[suffix](path, layers, columns)


@names_its_file
def open_embeddings(
    path: PathOrUri,
    n_features: int | None = None,
    layers: Sequence[str] | None = None,
    columns: Sequence[str] | None = None,
    fitted: Record | None = None,
) -> EmbeddingFile:
    """Open embeddings: an ``.npy``, ``.npz``, ``.csv`` or ``.parquet`` file, a folder or a URI of ``.parquet`` files.

    The files of a folder are one table, in the order of their paths. Features of earlier layers are further arrays of
    an ``.npz``, or list columns of a ``.parquet``, named ``features.`` and the layer's name.

    Args:
        path: a path or a URI.
        n_features: the width that embeddings must have; any when None.
        layers: names of the layers whose features to read; all that are there when None, none when empty.
        columns: the array, the list column, or the columns of numbers that hold the embeddings, where the file has
            others; ``*`` in a name stands for any text.
        fitted: the record of the detector that is given these embeddings; columns are matched with its by their names.
    """
    fit_columns = columns_of(fitted)
    has_names = not (isinstance(path, Path) and path.suffix.lower() == ".npy")
    if fitted is not None and "all" not in fitted and has_names:
        columns = columns or fit_columns
    reader = _open(path, layers, columns)
    matched = match_columns(path, reader.feature_names, fit_columns, is_chosen=bool(columns))
    if matched != reader.feature_names:
        reader = _open(path, layers, matched)
    if reader.count == 0 or 0 in reader.widths:
        widths = " + ".join(map(str, reader.widths))
        of_widths = f" of {widths} features" if reader.count or any(reader.widths) else ""  # empty lists have no width
        raise ValueError(f"{path} is empty: {reader.count} rows{of_widths}")
    if n_features not in {None, reader.width}:
        made = f" (columns {list_names(reader.columns)})" if len(reader.columns) > 1 else ""
        fix = "; --column chooses others" if reader.columns else ""
        raise ValueError(
            f"{path} has embeddings of {reader.width} features{made}, the head takes {n_features}: they are of another "
            f"layer or another network{fix}"
        )
    chunk_rows = max(1, CHUNK_BYTES // (8 * sum(reader.widths)))
    return EmbeddingFile(naming_its_file(reader), chunk_rows, tuple(columns or ()))


def open_standard_input(stream: IO[bytes], open_file: Callable[[Path], EmbeddingFile]) -> EmbeddingFile:
    """Read a stream of ``.npy``, ``.npz`` or CSV, told by its first bytes, to its end, and open its embeddings.

    ``open_file`` opens the copy on disk, which is deleted with the last reference to what is returned.
    """
    begin = stream.read(6)
    for magic, other in _OTHERS.items():
        if begin.startswith(magic):
            raise ValueError(
                f"{_STANDARD_INPUT} is {other}: expected .npy, .npz or CSV; write it to a file and give its path"
            )
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
    return replace(samples, reader=replace(samples.reader, path=_STANDARD_INPUT, read=read))


@contextmanager
def _renamed(path: Path) -> Iterator[None]:
    """Name standard input in messages, not the file that holds a copy of it."""
    try:
        yield
    except ValueError as error:
        raise ValueError(str(error).replace(str(path), str(_STANDARD_INPUT))) from error
