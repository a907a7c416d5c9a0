"""Partial results of a run: one file per range of the input's rows, so that a killed run can be resumed."""

from __future__ import annotations

import json
import logging
import re
from contextlib import nullcontext
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple
from uuid import uuid4

import numpy as np

from pnml._version import __version__
from pnml.backend.files import atomic_path
from pnml.backend.read_errors import naming_file
from pnml.io.locks import lock_folder
from pnml.io.paths import pyarrow, resolve
from pnml.io.scores import arrow_table
from pnml.io.texts import as_texts

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from contextlib import AbstractContextManager

    from pnml.io.paths import PathOrUri
    from pnml.io.scores import Columns

_LOG = logging.getLogger(__name__)
_MANIFEST = "_manifest.json"  # readers of parquet folders ignore names that begin with an underscore
_KIND = "pnml scores"
_VERSION = 1
_PART_NAME = re.compile(r"rows-\d{12,}-\d{12,}\.(npz|parquet)")
_ABOUT = "about"
_SKIPPED = "skipped"
_DIGEST = "digest"


class Part(NamedTuple):
    """The scores of a range of rows, the ids of the images that do not decode, and a digest of the rows' content."""

    columns: Columns
    skipped: list[str]
    digest: str = ""

    def covers(self, start: int, stop: int) -> bool:
        """Return whether every row from ``start`` to before ``stop`` is scored or was skipped."""
        wanted = stop - start - len(self.skipped)
        return bool(self.columns) and all(len(column) == wanted for column in self.columns.values())


def _encode_npz(part: Part) -> bytes:
    """Return a part as the content of an ``.npz``; columns of text are kept as JSON."""
    texts = {name: column.tolist() for name, column in part.columns.items() if column.dtype == object}
    numbers = {name: column for name, column in part.columns.items() if column.dtype != object}
    about = {"order": list(part.columns), "texts": texts, _SKIPPED: part.skipped, _DIGEST: part.digest}
    file = BytesIO()
    np.savez(file, **{_ABOUT: np.frombuffer(json.dumps(about).encode(), np.uint8)}, **numbers)  # type: ignore[arg-type]
    return file.getvalue()


def _decode_npz(file: IO[bytes]) -> Part:
    with np.load(file, allow_pickle=False) as arrays:
        about = json.loads(arrays[_ABOUT].tobytes())
        texts = {name: as_texts(column) for name, column in about["texts"].items()}
        columns = {name: texts[name] if name in texts else np.asarray(arrays[name]) for name in about["order"]}
    return Part(columns, about[_SKIPPED], about[_DIGEST])


def _encode_parquet(part: Part) -> bytes:
    content = pyarrow().BufferOutputStream()
    metadata = {_SKIPPED: json.dumps(part.skipped), _DIGEST: part.digest}
    pyarrow(".parquet").write_table(arrow_table(part.columns).replace_schema_metadata(metadata), content)
    return bytes(content.getvalue())


def _decode_parquet(file: IO[bytes]) -> Part:
    with pyarrow(".parquet").ParquetFile(file) as content:
        table = content.read()
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    metadata = table.schema.metadata
    return Part(columns, json.loads(metadata[_SKIPPED.encode()]), metadata.get(_DIGEST.encode(), b"").decode())


_FORMATS = {"npz": (_encode_npz, _decode_npz), "parquet": (_encode_parquet, _decode_parquet)}


class PartStore:
    """A folder with one file for every range of rows that is done, and a manifest of the work they belong to.

    A file is named after its range and is whole or absent. Writing a range again replaces its file, so a worker may be
    killed at any time and its range done again by another. Sorted by name, the parts are in the order of the input.
    Nothing is deleted that the manifest does not list. The folder is on this machine or in an object store. The format
    "npz" needs no extra; "parquet" is one that other programs read.
    """

    def __init__(self, path: PathOrUri, file_format: Literal["npz", "parquet"]) -> None:
        self.path = path
        self._folder = _open_folder(path)
        self._suffix = f".{file_format}"
        self._encode, self._decode = _FORMATS[file_format]
        self._run = uuid4().hex

    def lock(self) -> AbstractContextManager[None]:
        """Keep other runs out of the folder for a while; raise ``ValueError`` if one is at work in it."""
        return self._folder.lock()

    def begin(self, work: dict[str, Any], ranges: Sequence[tuple[int, int]], *, restart: bool = False) -> bool:
        """Create the folder, or resume in one of the same work; return whether its input changed meanwhile.

        Raise ``ValueError`` for the folder of other work, unless with ``restart``, or of another program.

        Args:
            work: what is computed from what, JSON-able; its "input" may change from run to run, if whoever resumes
                compares the digests of parts.
            ranges: the rows of every part.
            restart: delete the parts of an earlier run, whatever its work.
        """
        names = self._folder.names()
        files = [self._name(*rows) for rows in ranges]
        changed: list[str] = []
        if _MANIFEST in names:
            before = self._manifest()
            earlier = before["work"]
            if not restart:
                changed = [key for key in {**earlier, **work} if earlier.get(key) != work.get(key)]
            if changed not in ([], ["input"]):
                raise ValueError(
                    f"{self.path} belongs to another run: the {' and the '.join(changed)} changed. Undo the change to "
                    "resume, or start over with --restart"
                )
            kept = set() if restart else set(files)
            self._delete(before["files"].intersection(names) - kept)
        elif any(not name.startswith(".") for name in names):
            raise ValueError(f"{self.path} was not written by pnml score: move it, or write to another path")
        manifest = {"kind": _KIND, "version": _VERSION, "written_by": f"pnml {__version__}", "run": self._run}
        content = json.dumps({**manifest, "work": work, "files": files}, indent=1)
        self._folder.write(_MANIFEST, content.encode())
        return bool(changed)

    def check_complete(self, ranges: Iterable[tuple[int, int]]) -> None:
        """Raise ``ValueError`` unless the folder is still that of this run, and holds the part of every range."""
        names = set(self._folder.names())
        if _MANIFEST not in names or self._manifest()["run"] != self._run:
            raise ValueError(f"another run has begun in {self.path}: wait until it ends, or write to another path")
        for rows in ranges:
            if self._name(*rows) not in names:
                raise ValueError(f"{self.path} has lost {self._name(*rows)}: run the command again")

    def write(self, start: int, stop: int, part: Part) -> None:
        """Write the part of the rows from ``start`` to before ``stop``."""
        self._folder.write(self._name(start, stop), self._encode(part))

    def read(self, start: int, stop: int) -> Part | None:
        """Return a part; None when it is absent or, which is logged, damaged."""
        name = self._name(start, stop)
        try:
            with naming_file(name), self._folder.open(name) as file:
                part = self._decode(file)
                if part.covers(start, stop):
                    return part
            reason = "it does not hold all its rows"
        except FileNotFoundError:
            return None
        except ValueError as error:
            reason = str(error)
        _LOG.warning("%s in %s is damaged (%s): its rows are scored again", name, self.path, reason)
        return None

    def delete_leftovers(self) -> None:
        """Delete what killed writers left half written."""
        self._delete(name for name in self._folder.names() if name.startswith(".") and name.endswith(".partial"))

    def delete_all(self) -> None:
        """Delete every part and leftover, the manifest last, so that a run killed here can be resumed."""
        listed = self._manifest()["files"]
        self.delete_leftovers()
        self._delete(name for name in self._folder.names() if name in listed)
        self._delete([_MANIFEST])

    def _delete(self, names: Iterable[str]) -> None:
        for name in names:
            self._folder.delete(name)

    def _name(self, start: int, stop: int) -> str:
        return f"rows-{start:012d}-{stop:012d}{self._suffix}"

    def _manifest(self) -> dict[str, Any]:
        """Return the manifest, whose "files" are a set of names of parts; raise ``ValueError`` if it is not ours."""
        try:
            with self._folder.open(_MANIFEST) as file:
                manifest = {"run": None, "work": {}, "files": [], **json.loads(file.read())}
            manifest["work"] = dict(manifest["work"])
            files = {name for name in manifest["files"] if isinstance(name, str) and _PART_NAME.fullmatch(name)}
        except (ValueError, TypeError, RecursionError) as error:
            raise ValueError(f"{_MANIFEST} in {self.path} is damaged ({error}): delete that folder") from error
        if manifest.get("kind") != _KIND:
            raise ValueError(f"{self.path} was not written by pnml score: move it, or write to another path")
        if manifest.get("version") != _VERSION:
            raise ValueError(
                f"{self.path} was written by {manifest.get('written_by')}, whose parts this version does not read: "
                "delete that folder, or write to another path"
            )
        return {**manifest, "files": files}


def _open_folder(path: PathOrUri) -> _LocalFolder | _RemoteFolder:
    """Return the folder at a path or a URI, which need not exist yet."""
    if isinstance(path, Path):
        return _LocalFolder(path.absolute())  # workers have other working folders
    filesystem, inner = resolve(path)
    return _LocalFolder(Path(inner)) if filesystem.type_name == "local" else _RemoteFolder(path, filesystem, inner)


@dataclass(frozen=True)
class _LocalFolder:
    """A folder on a disk, for which no pyarrow is needed."""

    path: Path

    def names(self) -> list[str]:
        if self.path.is_file():
            raise ValueError(f"{self.path} is a file: expected a folder, or nothing yet")
        return sorted(file.name for file in self.path.iterdir()) if self.path.exists() else []

    def open(self, name: str) -> IO[bytes]:
        return (self.path / name).open("rb")

    def write(self, name: str, content: bytes) -> None:
        self.path.mkdir(parents=True, exist_ok=True)
        with atomic_path(self.path / name, sweep=False) as partial:  # one of thousands of files in this folder
            partial.write_bytes(content)

    def delete(self, name: str) -> None:
        (self.path / name).unlink()

    def lock(self) -> AbstractContextManager[None]:
        return lock_folder(self.path)


@dataclass(frozen=True)
class _RemoteFolder:
    """A folder in an object store, with the methods of :class:`_LocalFolder`."""

    uri: str
    filesystem: Any
    path: str

    def names(self) -> list[str]:
        fs = pyarrow(".fs")
        if self.filesystem.get_file_info(self.path).type == fs.FileType.File:
            raise ValueError(f"{self.uri} is a file: expected a folder, or nothing yet")
        listing = self.filesystem.get_file_info(fs.FileSelector(self.path, allow_not_found=True))
        return sorted(info.base_name for info in listing)

    def open(self, name: str) -> Any:
        return self.filesystem.open_input_file(f"{self.path}/{name}")

    def write(self, name: str, content: bytes) -> None:
        # In one call: the store shows the file when it is whole, so a killed writer leaves nothing.
        with self.filesystem.open_output_stream(f"{self.path}/{name}") as file:
            file.write(content)

    def delete(self, name: str) -> None:
        self.filesystem.delete_file(f"{self.path}/{name}")

    def lock(self) -> AbstractContextManager[None]:
        return nullcontext()  # stores have no locks, so writers have to notice each other in another way
