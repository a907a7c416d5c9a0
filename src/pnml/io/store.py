"""Partial results of a run: one file per range of the input's rows, so that a killed run can be resumed."""

from __future__ import annotations

import json
import logging
import struct
import zipfile
import zlib
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from pnml.backend.extras import require
from pnml.io.folders import open_folder

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from pnml.io.paths import PathOrUri

_LOG = logging.getLogger(__name__)
_MANIFEST = "_manifest.json"  # readers of parquet folders ignore names that begin with an underscore
_SKIPPED, _DIGEST = "skipped", "digest"
_DAMAGE = (ValueError, KeyError, TypeError, EOFError, struct.error, zipfile.BadZipFile, zlib.error)

Columns = dict[str, "NDArray[Any]"]


class Part(NamedTuple):
    """The scores of a range of rows.

    Attributes:
        columns: the scores.
        skipped: the ids of the images that do not decode.
        digest: of the content of the rows, as :meth:`~pnml.io.source.Samples.digest` returns it.
    """

    columns: Columns
    skipped: list[str]
    digest: str = ""


class PartStore:
    """A folder with one file for every range of rows that is done, and a manifest of the work they belong to.

    A file is named after its range and is whole or absent. Writing a range again replaces its file, so a worker may be
    killed at any time and its range done again by another. Sorted by name, the parts are in the order of the input.

    Args:
        path: the folder, on this machine or in an object store; it is created when needed.
        file_format: "npz" needs no extra; "parquet" is a format that other programs read.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store = PartStore(Path(folder) / "scores.csv.parts", "npz")
    ...     _ = store.begin({"input": "rows.npy"})
    ...     store.write(0, 2, Part({"regret": np.array([0.1, 0.2])}, []))
    ...     store.read(0, 2), store.read(2, 4)
    (Part(columns={'regret': array([0.1, 0.2])}, skipped=[], digest=''), None)
    """

    def __init__(self, path: PathOrUri, file_format: Literal["npz", "parquet"]) -> None:
        self.path = path
        self._folder = open_folder(path)
        self._suffix = f".{file_format}"
        self._encode, self._decode = _FORMATS[file_format]

    def begin(
        self,
        manifest: dict[str, Any],
        *,
        restart: bool = False,
        digest: Callable[[int, int], str] | None = None,
    ) -> bool:
        """Create the folder, or resume in one of the same manifest; raise ``ValueError`` for any other folder.

        Args:
            manifest: what is computed from what, JSON-able.
            restart: delete the parts of an earlier run, whatever its manifest.
            digest: returns that of a range of the input's rows. Where nothing but the input changed, the parts of
                ranges whose digests are the same are kept, and others deleted; without it, that raises, too.

        Returns:
            Whether a run is resumed whose input changed.
        """
        is_changed = False
        names = self._folder.names()
        if _MANIFEST not in names:
            if any(not name.startswith(".") for name in names):
                raise ValueError(f"{self.path} was not written by pnml score: move it, or write to another path")
        elif restart:
            self._delete(name for name in names if name.startswith("rows-"))
        else:
            changed = self._changes(manifest)
            if not changed:
                return False
            is_changed = digest is not None and "input" in changed and {*changed} <= {"input", "ranges"}
            if digest is None or not is_changed:
                raise ValueError(
                    f"{self.path} belongs to another run: the {' and the '.join(changed)} changed. Undo the change to "
                    "resume, or start over with --restart"
                )
            self._delete(name for name in names if name.startswith("rows-") and not self._is_current(name, digest))
        self._folder.write(_MANIFEST, json.dumps(manifest, indent=1).encode())
        return is_changed

    def write(self, start: int, stop: int, part: Part) -> None:
        """Write the part of the rows from ``start`` to before ``stop``."""
        self._folder.write(self._name(start, stop), self._encode(part))

    def read(self, start: int, stop: int) -> Part | None:
        """Return a part; None when it is absent or, which is logged, damaged."""
        name = self._name(start, stop)
        try:
            with self._folder.open(name) as file:
                return self._decode(file)
        except FileNotFoundError:
            return None
        except _DAMAGE as error:
            _LOG.warning("%s in %s is damaged (%s): its rows are scored again", name, self.path, error)
            return None

    def delete_leftovers(self) -> None:
        """Delete what killed writers left half written."""
        self._delete(name for name in self._folder.names() if name.startswith(".") and name.endswith(".partial"))

    def delete_all(self) -> None:
        """Delete every file, the manifest last, so that a run killed here can be resumed."""
        self._delete(name for name in self._folder.names() if name != _MANIFEST)
        self._delete([_MANIFEST])

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._folder.delete(name)

    def _name(self, start: int, stop: int) -> str:
        return f"rows-{start:012d}-{stop:012d}{self._suffix}"

    def _is_current(self, name: str, digest: Callable[[int, int], str]) -> bool:
        """Return whether a part is of rows that are as they were."""
        start, stop = (int(number) for number in name.removesuffix(self._suffix).split("-")[1:])
        part = self.read(start, stop)
        return part is not None and part.digest == digest(start, stop)

    def _changes(self, manifest: dict[str, Any]) -> list[str]:
        """Return the keys of the manifest whose values are not those of the folder's."""
        try:
            with self._folder.open(_MANIFEST) as file:
                before = dict(json.loads(file.read()))
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.path} is damaged ({error}): start over with --restart") from error
        return [key for key in {**before, **manifest} if before.get(key) != manifest.get(key)]


def _encode_npz(part: Part) -> bytes:
    file = BytesIO()
    arrays = {**part.columns, _SKIPPED: np.asarray(part.skipped, dtype=np.str_), _DIGEST: np.asarray(part.digest)}
    np.savez(file, **arrays)  # type: ignore[arg-type] # its stubs take the columns for allow_pickle
    return file.getvalue()


def _decode_npz(file: IO[bytes]) -> Part:
    with np.load(file, allow_pickle=False) as arrays:
        columns = {name: arrays[name] for name in arrays.files}
    return Part(columns, columns.pop(_SKIPPED).tolist(), str(columns.pop(_DIGEST, "")))


def _encode_parquet(part: Part) -> bytes:
    arrow = require("pyarrow", extra="parquet", what="writing parquet")
    parquet = require("pyarrow.parquet", extra="parquet", what="writing parquet")
    content = arrow.BufferOutputStream()
    metadata = {_SKIPPED: json.dumps(part.skipped), _DIGEST: part.digest}
    table = arrow.table(part.columns).replace_schema_metadata(metadata)
    parquet.write_table(table, content)
    return bytes(content.getvalue())


def _decode_parquet(file: IO[bytes]) -> Part:
    parquet = require("pyarrow.parquet", extra="parquet", what="reading parquet")
    with parquet.ParquetFile(file) as content:
        table = content.read()
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    metadata = table.schema.metadata
    return Part(columns, json.loads(metadata[_SKIPPED.encode()]), metadata.get(_DIGEST.encode(), b"").decode())


_FORMATS = {"npz": (_encode_npz, _decode_npz), "parquet": (_encode_parquet, _decode_parquet)}
