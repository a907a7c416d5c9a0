"""Chosen rows of a parquet or CSV file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.extras import require

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.io.parquet_files import ParquetFiles

_AT_ONCE = 1024


def read_rows(table: ParquetFiles, columns: Sequence[str], rows: NDArray[np.intp]) -> dict[str, list[Any]]:
    """Return the values of columns in ascending rows; the others are read, but not kept."""
    held: dict[str, list[Any]] = {name: [] for name in columns}
    for first, part in table.tables(list(columns), 0, _AT_ONCE):
        taken = part.take(rows[(rows >= first) & (rows < first + part.num_rows)] - first)
        for name in columns:
            held[name] += taken.column(name).to_pylist()
    return held


def label_column(schema: Any) -> str | None:
    """Return the first column of integers with "label" in its name; None where there is none."""
    types = require("pyarrow.types", extra="parquet", what="reading parquet")
    labels = [field.name for field in schema if "label" in field.name.lower() and types.is_integer(field.type)]
    return labels[0] if labels else None


def as_labels(path: Path, column: str, values: Sequence[Any]) -> NDArray[np.int64]:
    """Return labels as integers; raise ``ValueError`` for a row whose label is none."""
    numbers = [_as_number(value) for value in values]
    if None in numbers:
        row = numbers.index(None)
        raise ValueError(
            f"{path} has {values[row]!r} as {column!r} in row {row}: expected the number of a class, from 0 on"
        )
    return np.asarray(numbers, dtype=np.int64)


def _as_number(value: Any) -> int | None:
    """Return an integer as such, also out of text; None for what is no integer."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isinstance(value, str) or number == value else None
