"""Tables of scores: from results to columns, and to parquet or CSV."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from pnml.backend.arrays import to_numpy
from pnml.backend.extras import require
from pnml.io.part import arrow_table
from pnml.io.texts import as_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.core.detector import Detector
    from pnml.core.result import Result
    from pnml.io.part import Columns

DTYPES: dict[str, type[Any]] = {
    "prediction": np.int64,
    "probability": np.float64,
    "regret": np.float64,
    "p_value": np.float64,
    "is_ood": np.bool_,
}
"""Of the columns that every table may have, beside the ids."""

_ROWS_AT_ONCE = 1 << 12  # as Python's numbers, which take several times the memory

LEVERAGE = "leverage."
"""Begins the names of columns that hold the leverage of one layer."""

STRANGEST = "strangest_layer"
"""The name of the column with the layer in which a sample is strangest."""


def layer_labels(layer_names: Iterable[str]) -> tuple[str, ...]:
    """Return what the embedding and the earlier layers are called in tables: "embedding", and their names.

    A layer that has the name "embedding" itself is told apart.

    >>> layer_labels(["embedding", "encoder"])
    ('embedding', 'embedding (layer)', 'encoder')
    """
    return "embedding", *("embedding (layer)" if name == "embedding" else name for name in layer_names)


@dataclass(frozen=True)
class ScoreTable:
    """Which columns a table of scores has.

    Attributes:
        is_calibrated: p_value and is_ood.
        layer_names: of the layers that the detector reads, and "lengths"; with any, the strangest one of every sample.
        by_layer: the leverage of every layer, too.
    """

    is_calibrated: bool
    layer_names: tuple[str, ...] = ()
    by_layer: bool = False

    @classmethod
    def of(cls, detector: Detector, *, by_layer: bool = False) -> ScoreTable:
        """Return the columns for the scores of a detector."""
        return cls(detector.threshold is not None, detector.watched_names, by_layer)

    def columns(self, ids: NDArray[Any], result: Result) -> Columns:
        """Return the scores of a batch."""
        values = {name: getattr(result, name) for name in self._names if name != "probability"}
        values["probability"] = to_numpy(result.probabilities).max(axis=-1)
        found = {name: to_numpy(values[name], DTYPES[name]) for name in self._names}
        if not self.layer_names:
            return {"id": ids, **found}
        return {"id": ids, **found, **self._layers(result)}

    def empty(self, ids: NDArray[Any]) -> Columns:
        """Return a table without rows, for a batch without a decodable image."""
        found = {"id": ids, **{name: np.empty(0, DTYPES[name]) for name in self._names}}
        if self.layer_names:
            found[STRANGEST] = as_texts(layer_labels(self.layer_names))[:0]
        if self.by_layer:
            found |= {f"{LEVERAGE}{name}": np.empty(0) for name in layer_labels(self.layer_names)}
        return found

    @property
    def _names(self) -> list[str]:
        return [name for name in DTYPES if self.is_calibrated or name not in {"p_value", "is_ood"}]

    def _layers(self, result: Result) -> Columns:
        names = as_texts(layer_labels(self.layer_names))
        strangest = {STRANGEST: names[to_numpy(result.strangest_layer, np.int64)]}
        if not self.by_layer:
            return strangest
        leverages = to_numpy(result.leverage_by_layer, np.float64)
        return strangest | {f"{LEVERAGE}{name}": leverages[:, number] for number, name in enumerate(names)}


def score_writer(out: Path) -> Callable[[Path, Iterable[Columns]], None]:
    """Return the function that writes tables with the same columns to one file, in the format that ``out`` ends in."""
    if out.suffix == ".csv":
        return _write_csv
    if out.suffix == ".parquet":
        require("pyarrow.parquet", extra="parquet", what="writing parquet")
        return _write_parquet
    raise ValueError(f"{out} must end in .parquet or .csv")


def _write_parquet(path: Path, tables: Iterable[Columns]) -> None:
    parquet = require("pyarrow.parquet", extra="parquet", what="writing parquet")
    arrow_tables = (arrow_table(columns) for columns in tables)
    first = next(arrow_tables)
    with parquet.ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for table in arrow_tables:
            writer.write_table(table)


def _write_csv(path: Path, tables: Iterable[Columns]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        write_csv(file, tables)


def write_csv(file: TextIO, tables: Iterable[Columns]) -> None:
    """Write tables with the same columns to an open file, as one CSV."""
    writer = csv.writer(file, lineterminator="\n")
    for number, columns in enumerate(tables):
        if number == 0:
            writer.writerow(columns)
        for start in range(0, len(columns["id"]), _ROWS_AT_ONCE):
            writer.writerows(_rows({name: held[start : start + _ROWS_AT_ONCE] for name, held in columns.items()}))


def _rows(columns: Columns) -> Iterator[tuple[object, ...]]:
    """Return the rows of a table, with Booleans written as true and false."""
    values = [
        ["true" if value else "false" for value in column] if column.dtype == bool else column.tolist()
        for column in columns.values()
    ]
    return zip(*values, strict=True)
