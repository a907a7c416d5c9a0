"""Parquet files, streamed: tables of a fixed number of rows, and embeddings out of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml._extras import require
from pnml.io.stored import Stored

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_BUFFER = 1 << 16  # bytes read ahead per column; without it whole row groups are held


def open_parquet(path: Path) -> Any:
    """Open a parquet file for reading in pieces."""
    parquet = require("pyarrow.parquet", extra="parquet", what="reading parquet")
    try:
        return parquet.ParquetFile(path, pre_buffer=False, buffer_size=_BUFFER)
    except ValueError as error:
        raise ValueError(f"{path} is no whole parquet file ({error}): write it again") from error


def tables(path: Path, columns: list[str], start: int, size: int) -> Iterator[Any]:
    """Yield tables of ``size`` rows (fewer only at the end) from row ``start`` on; earlier row groups are not read."""
    arrow = require("pyarrow", extra="parquet", what="reading parquet")
    with open_parquet(path) as file:
        counts = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        first = 0
        while first < len(counts) and counts[first] <= start:
            start -= counts[first]
            first += 1
        held = None
        for batch in file.iter_batches(size, row_groups=range(first, len(counts)), columns=columns):
            rest = arrow.Table.from_batches([batch.slice(start)])
            start = max(0, start - batch.num_rows)
            held = rest if held is None else arrow.concat_tables([held, rest])
            while held.num_rows >= size:
                yield held.slice(0, size)
                held = held.slice(size)
        if held is not None and held.num_rows:
            yield held


def ids_of(table: Any, first: int) -> NDArray[Any] | None:
    """The column ``id`` of a table as integers or text; None where there is none."""
    if "id" not in table.column_names:
        return None
    arrow = require("pyarrow", extra="parquet", what="reading parquet")
    column = table.column("id")
    if column.null_count:
        row = first + int(column.is_null().to_numpy().argmax())
        raise ValueError(f"row {row}, counted from 0, has no id: give every row one, or leave the column out")
    if arrow.types.is_integer(column.type):
        return np.asarray(column.to_numpy(), dtype=np.int64)
    return np.asarray(column.cast(arrow.string()).to_pylist(), dtype=np.str_)


def open_embeddings_parquet(path: Path) -> Stored:
    """Open embeddings in a list column ``embedding``, or in all floating-point columns in order; and maybe ``id``."""
    types = require("pyarrow.types", extra="parquet", what="reading parquet")
    with open_parquet(path) as file:
        count, schema = file.metadata.num_rows, file.schema_arrow
    listed = "embedding" in schema.names
    features = ["embedding"] if listed else [f.name for f in schema if types.is_floating(f.type) and f.name != "id"]
    if not features:
        found = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise ValueError(f"{path} has neither a list column 'embedding' nor floating-point columns, only {found}")
    columns = [*features, *(["id"] if "id" in schema.names else [])]
    width = len(features)
    if listed:
        kind = schema.field("embedding").type
        if not (types.is_fixed_size_list(kind) or types.is_list(kind) or types.is_large_list(kind)):
            raise ValueError(f"'embedding' in {path} is {kind}: expected a list of numbers in every row")
        width = next((len(t.column(0)[0].as_py() or ()) for t in tables(path, features, 0, 1)), 0)

    def read(start: int, size: int) -> Iterator[tuple[NDArray[Any] | None, NDArray[Any]]]:
        for first, table in zip(range(start, count, size), tables(path, columns, start, size), strict=True):
            rows = (
                _listed(path, table.column("embedding"), width, first)
                if listed
                else np.column_stack([table.column(name).to_numpy() for name in features])
            )
            yield ids_of(table, first), rows

    return Stored(count, width, read)


def _listed(path: Path, column: Any, width: int, first: int) -> NDArray[Any]:
    """The lists of a column as the rows of a matrix."""
    compute = require("pyarrow.compute", extra="parquet", what="reading parquet")
    lengths = compute.fill_null(compute.list_value_length(column), 0).to_numpy()
    odd = lengths != width
    if odd.any():
        row = int(odd.argmax())
        raise ValueError(
            f"row {first + row} of {path}, counted from 0, has {lengths[row]} features where row 0 has {width}"
        )
    return np.asarray(compute.list_flatten(column).to_numpy()).reshape(len(column), width)
