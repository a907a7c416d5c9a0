"""The scores of a range of rows, and the two file formats that they are kept in."""

from __future__ import annotations

import json
from io import BytesIO
from typing import IO, TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.io.paths import pyarrow
from pnml.io.texts import as_texts

if TYPE_CHECKING:
    from numpy.typing import NDArray

_ABOUT = "about"
_SKIPPED = "skipped"
_DIGEST = "digest"

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
    """Return a part as the content of an ``.npz``; columns of text are kept as JSON."""
    texts = {name: column.tolist() for name, column in part.columns.items() if column.dtype == object}
    numbers = {name: column for name, column in part.columns.items() if column.dtype != object}
    about = {"order": list(part.columns), "texts": texts, _SKIPPED: part.skipped, _DIGEST: part.digest}
    file = BytesIO()
    np.savez(file, **{_ABOUT: np.frombuffer(json.dumps(about).encode(), np.uint8)}, **numbers)  # type: ignore[arg-type]
    return file.getvalue()


def decode_npz(file: IO[bytes]) -> Part:
    """Return the part that :func:`encode_npz` wrote."""
    with np.load(file, allow_pickle=False) as arrays:
        about = json.loads(arrays[_ABOUT].tobytes())
        texts = {name: as_texts(column) for name, column in about["texts"].items()}
        columns = {name: texts[name] if name in texts else np.asarray(arrays[name]) for name in about["order"]}
    return Part(columns, about[_SKIPPED], about[_DIGEST])


def encode_parquet(part: Part) -> bytes:
    """Return a part as the content of a ``.parquet``."""
    content = pyarrow().BufferOutputStream()
    metadata = {_SKIPPED: json.dumps(part.skipped), _DIGEST: part.digest}
    pyarrow(".parquet").write_table(arrow_table(part.columns).replace_schema_metadata(metadata), content)
    return bytes(content.getvalue())


def decode_parquet(file: IO[bytes]) -> Part:
    """Return the part that :func:`encode_parquet` wrote."""
    with pyarrow(".parquet").ParquetFile(file) as content:
        table = content.read()
    columns = {name: table.column(name).to_numpy() for name in table.column_names}
    metadata = table.schema.metadata
    return Part(columns, json.loads(metadata[_SKIPPED.encode()]), metadata.get(_DIGEST.encode(), b"").decode())


def arrow_table(columns: Columns) -> Any:
    """Return columns as an Arrow table; those of objects are text, also where they are empty."""
    arrow = pyarrow()
    texts = {name: arrow.array(column, arrow.string()) for name, column in columns.items() if column.dtype == object}
    return arrow.table({**columns, **texts})
