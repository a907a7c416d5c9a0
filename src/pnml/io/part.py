"""The scores of a range of rows, and the two file formats that they are kept in."""

from __future__ import annotations

import json
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.backend.extras import require
from pnml.io.texts import join_texts, split_texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

_SKIPPED, _DIGEST, _TEXT = "skipped", "digest", "text "

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

    def covers(self, start: int, stop: int) -> bool:
        """Return whether every row from ``start`` to before ``stop`` is scored or was skipped."""
        wanted = stop - start - len(self.skipped)
        return bool(self.columns) and all(len(column) == wanted for column in self.columns.values())


def encode_npz(part: Part) -> bytes:
    """Return a part as the content of an ``.npz``; columns of text are kept as their bytes and lengths."""
    arrays: dict[str, NDArray[Any]] = {_DIGEST: np.asarray(part.digest)}
    texts = {_SKIPPED: np.array(part.skipped, dtype=object)}
    for name, column in part.columns.items():
        (texts if column.dtype == object else arrays)[name] = column
    for name, column in texts.items():
        arrays[_TEXT + name], arrays[f"{_TEXT}{name} lengths"] = join_texts(column)
    file = BytesIO()
    np.savez(file, order=np.array(list(part.columns)), **arrays)  # type: ignore[arg-type] # stubs: allow_pickle
    return file.getvalue()


def decode_npz(file: IO[bytes]) -> Part:
    """Return the part that :func:`encode_npz` wrote."""

    def member(name: str) -> NDArray[Any]:
        found = arrays[name]
        if not isinstance(found, np.ndarray):  # but bytes, which do not begin as an array does
            raise ValueError(f"{name!r} is no array")  # noqa: TRY004 - of the file
        return found

    def column(name: str) -> NDArray[Any]:
        if name in arrays.files:
            return member(name)
        return split_texts(member(_TEXT + name), member(f"{_TEXT}{name} lengths"))

    with np.load(file, allow_pickle=False) as arrays:
        columns = {name: column(name) for name in member("order").tolist()}
        return Part(columns, column(_SKIPPED).tolist(), str(member(_DIGEST)))


def encode_parquet(part: Part) -> bytes:
    """Return a part as the content of a ``.parquet``."""
    arrow = require("pyarrow", extra="parquet", what="writing parquet")
    parquet = require("pyarrow.parquet", extra="parquet", what="writing parquet")
    content = arrow.BufferOutputStream()
    metadata = {_SKIPPED: json.dumps(part.skipped), _DIGEST: part.digest}
    parquet.write_table(arrow_table(part.columns).replace_schema_metadata(metadata), content)
    return bytes(content.getvalue())


def decode_parquet(file: IO[bytes]) -> Part:
    """Return the part that :func:`encode_parquet` wrote."""
    parquet = require("pyarrow.parquet", extra="parquet", what="reading parquet")
    with parquet.ParquetFile(file) as content:
        table = content.read()
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    metadata = table.schema.metadata
    return Part(columns, json.loads(metadata[_SKIPPED.encode()]), metadata.get(_DIGEST.encode(), b"").decode())


def arrow_table(columns: Columns) -> Any:
    """Return columns as an Arrow table; those of objects are text, also where they are empty."""
    arrow = require("pyarrow", extra="parquet", what="writing parquet")
    texts = {name: arrow.array(column, arrow.string()) for name, column in columns.items() if column.dtype == object}
    return arrow.table({**columns, **texts})
