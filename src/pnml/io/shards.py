"""Scores as a folder of parquet files, one for each range of the input's rows, written by many machines at once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from pnml.backend.extras import require
from pnml.backend.files import atomic_path
from pnml.io.parts import Columns, changes
from pnml.io.paths import PathOrUri, located

_MANIFEST = "_manifest.json"  # readers of parquet folders pass over names with an underscore
_FACTS = b"pnml"


class Shards:
    """The folder of a table of scores, on this machine, on a disk all machines share, or in a store.

    A shard is named after the rows of the input it covers and is whole or not there: writing it again replaces it, so
    that a worker may be killed at any time and its work done anew by another. Sorted by name, the shards are the table
    in the order of the input. A manifest says what is scored with what; only the same work goes on in the folder.

    Args:
        out: the folder; it is made when it is not there.
    """

    def __init__(self, out: PathOrUri) -> None:
        self.out = out
        self._filesystem, self._folder = located(out)

    def begin(self, manifest: dict[str, Any], *, restart: bool = False) -> None:
        """Make the folder, or go on with what the same work left there; refuse anything else."""
        names = self._names()
        if _MANIFEST not in names:
            if any(not name.startswith(".") for name in names):
                raise ValueError(f"{self.out} is in the way and was not written by pnml score: name another folder")
            self._write(_MANIFEST, json.dumps(manifest, indent=1).encode())
            return
        if restart:
            for name in names:
                if name.endswith(".parquet"):
                    self._filesystem.delete_file(f"{self._folder}/{name}")
            self._write(_MANIFEST, json.dumps(manifest, indent=1).encode())
            return
        try:
            with self._filesystem.open_input_stream(f"{self._folder}/{_MANIFEST}") as file:
                changed = changes(json.loads(file.read()), manifest)
        except (ValueError, TypeError) as error:
            raise ValueError(f"the manifest in {self.out} is damaged ({error}): start over with --restart") from error
        if changed:
            raise ValueError(f"{self.out} holds another table: {changed}")

    def write(self, start: int, stop: int, columns: Columns, facts: dict[str, Any]) -> None:
        """Write the scores of the input's rows from ``start`` to before ``stop``, and facts to find again in them."""
        arrow = require("pyarrow", extra="parquet", what="writing parquet")
        parquet = require("pyarrow.parquet", extra="parquet", what="writing parquet")
        whole = arrow.BufferOutputStream()
        parquet.write_table(arrow.table(columns).replace_schema_metadata({_FACTS: json.dumps(facts)}), whole)
        self._write(_name(start, stop), whole.getvalue())

    def facts(self, start: int, stop: int) -> dict[str, Any] | None:
        """Give the facts of a shard, None when it is not there or not whole."""
        parquet = require("pyarrow.parquet", extra="parquet", what="reading parquet")
        try:
            with self._filesystem.open_input_file(f"{self._folder}/{_name(start, stop)}") as file:
                found: dict[str, Any] = json.loads(parquet.read_schema(file).metadata[_FACTS])
        except (FileNotFoundError, ValueError):
            return None
        return found

    def finish(self) -> None:
        """Remove what writers that were killed left half written."""
        for name in self._names():
            if name.startswith(".rows-") and name.endswith(".partial"):
                self._filesystem.delete_file(f"{self._folder}/{name}")

    def _write(self, name: str, data: Any) -> None:
        path = f"{self._folder}/{name}"
        if self._filesystem.type_name == "local":
            Path(self._folder).mkdir(parents=True, exist_ok=True)
            with atomic_path(path) as partial:
                partial.write_bytes(data)
        else:  # a store shows a file when it is whole; all of it is handed over at once, so half of it never is
            with self._filesystem.open_output_stream(path) as file:
                file.write(data)

    def _names(self) -> list[str]:
        fs = require("pyarrow.fs", extra="parquet", what="writing parquet")
        found = self._filesystem.get_file_info(self._folder)
        if found.type == fs.FileType.File:
            raise ValueError(f"{self.out} is a file: with --engine ray the table is a folder of parquet files")
        selector = fs.FileSelector(self._folder, allow_not_found=True)
        return [info.base_name for info in self._filesystem.get_file_info(selector)]


def _name(start: int, stop: int) -> str:
    return f"rows-{start:012d}-{stop:012d}.parquet"
