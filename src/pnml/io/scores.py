"""Tables of scores: from results to columns, and to parquet or CSV."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import to_numpy
from pnml.backend.extras import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.core.result import Result
    from pnml.io.store import Columns

_DTYPES: dict[str, type[Any]] = {
    "prediction": np.int64,
    "probability": np.float64,
    "regret": np.float64,
    "p_value": np.float64,
    "is_ood": np.bool_,
}


def score_columns(ids: NDArray[Any], result: Result) -> Columns:
    """Return the table of scores of a batch; p_value and is_ood once the detector is calibrated."""
    values = {name: getattr(result, name) for name in _DTYPES if name != "probability"}
    values["probability"] = to_numpy(result.probabilities).max(axis=-1)
    found = {name: to_numpy(values[name], dtype) for name, dtype in _DTYPES.items() if values[name] is not None}
    return {"id": ids, **found}


def empty_columns(ids: NDArray[Any], *, is_calibrated: bool) -> Columns:
    """Return a table of scores without rows, for a batch without a decodable image."""
    names = [name for name in _DTYPES if is_calibrated or name not in {"p_value", "is_ood"}]
    return {"id": ids, **{name: np.empty(0, _DTYPES[name]) for name in names}}


def score_writer(out: Path) -> Callable[[Path, Iterable[Columns]], None]:
    """Return the function that writes tables with the same columns to one file, in the format that ``out`` ends in."""
    if out.suffix == ".csv":
        return _write_csv
    if out.suffix == ".parquet":
        require("pyarrow.parquet", extra="parquet", what="writing parquet")
        return _write_parquet
    raise ValueError(f"{out} must end in .parquet or .csv")


def _write_parquet(path: Path, tables: Iterable[Columns]) -> None:
    arrow = require("pyarrow", extra="parquet", what="writing parquet")
    parquet = require("pyarrow.parquet", extra="parquet", what="writing parquet")
    arrow_tables = (arrow.table(columns) for columns in tables)
    first = next(arrow_tables)
    with parquet.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for table in arrow_tables:
            writer.write_table(table)


def _write_csv(path: Path, tables: Iterable[Columns]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        for number, columns in enumerate(tables):
            if number == 0:
                writer.writerow(columns)
            writer.writerows(_rows(columns))


def _rows(columns: Columns) -> Iterator[tuple[object, ...]]:
    """Return the rows of a table, with Booleans written as true and false."""
    values = [
        ["true" if value else "false" for value in column] if column.dtype == bool else column.tolist()
        for column in columns.values()
    ]
    return zip(*values, strict=True)
