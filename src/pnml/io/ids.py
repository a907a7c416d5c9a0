"""The ids of rows as text: bytes are read as UTF-8, and what is not is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.extras import require
from pnml.io.texts import as_texts

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray


def decode_ids(ids: Iterable[bytes], first: int = 0) -> list[str]:
    """Return ids that a file stores as bytes as text; raise ``ValueError`` for one that is not UTF-8.

    Args:
        ids: of consecutive rows.
        first: the number of the first of these rows.

    >>> decode_ids([b"a", "ä".encode()])
    ['a', 'ä']
    """
    return [_decode(value, row) for row, value in enumerate(ids, start=first)]


def _decode(value: bytes, row: int) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(
            f"row {row}, counted from 0, has the id {value!r}, which is not UTF-8: store ids as text, as with "
            f"id.hex(), here {value.hex()!r}"
        ) from None


def table_ids(table: Any, first: int) -> NDArray[Any]:
    """Return the column ``id`` of a table as integers or text; row numbers, from ``first`` on, where it has none.

    Bytes become text.
    """
    if "id" not in table.column_names:
        return np.arange(first, first + table.num_rows)
    arrow = require("pyarrow", extra="parquet", what="reading parquet")
    column = table.column("id")
    if column.null_count:
        row = first + int(column.is_null().to_numpy().argmax())
        raise ValueError(f"row {row}, counted from 0, has no id: give every row one, or leave the column out")
    if arrow.types.is_integer(column.type):
        return np.asarray(column.to_numpy(), dtype=np.uint64 if column.type == arrow.uint64() else np.int64)
    types = arrow.types
    if types.is_binary(column.type) or types.is_large_binary(column.type) or types.is_fixed_size_binary(column.type):
        return as_texts(decode_ids(column.to_pylist(), first))
    if types.is_dictionary(column.type):
        return np.concatenate([as_texts(()), *(_repeated_texts(chunk) for chunk in column.chunks)])
    return as_texts(column.cast(arrow.string()).to_pylist())


def _repeated_texts(chunk: Any) -> NDArray[Any]:
    """Return the texts of dictionary-encoded rows, of which equal ones are the same object."""
    arrow = require("pyarrow", extra="parquet", what="reading parquet")
    found, places = np.unique(chunk.indices.to_numpy(zero_copy_only=False), return_inverse=True)
    return as_texts(chunk.dictionary.take(arrow.array(found)).to_pylist())[places]
