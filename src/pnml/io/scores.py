"""Tables of scores: from results to columns, and to parquet or CSV."""

from __future__ import annotations

import csv
import re
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from pnml.backend.arrays import to_numpy
from pnml.io.paths import pyarrow
from pnml.io.texts import as_texts

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.core.detector import Detector
    from pnml.core.result import Result

Columns = dict[str, "NDArray[Any]"]
"""The columns of a table, by name."""

DTYPES: dict[str, type[Any]] = {
    "prediction": np.int64,
    "probability": np.float64,
    "regret": np.float64,
    "p_value": np.float64,
    "is_ood": np.bool_,
}
"""Of the columns that every table may have, beside the ids."""

_FORMULA = re.compile(r"'*[=+\-@]")

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


class ScoreTable:
    """Makes tables of a detector's scores; with ``by_layer``, also of the leverage of every layer that it watches."""

    def __init__(self, detector: Detector, *, by_layer: bool = False) -> None:
        self._labels = layer_labels(detector.watched_names) if detector.watched_names else ()
        self._kinds: dict[str, Any] = dict(DTYPES)
        if detector.threshold is None:
            del self._kinds["p_value"], self._kinds["is_ood"]
        if self._labels:
            self._kinds[STRANGEST] = object
        self._leverages = [f"{LEVERAGE}{label}" for label in self._labels if by_layer]

    def columns(self, ids: NDArray[Any], result: Result) -> Columns:
        """Return the scores of a batch."""
        columns = {"id": ids}
        for name, kind in self._kinds.items():
            if name == "probability":
                columns[name] = to_numpy(result.probabilities, kind).max(axis=-1)
            elif name == STRANGEST:
                columns[name] = as_texts(self._labels)[to_numpy(result.strangest_layer, np.int64)]
            else:
                columns[name] = to_numpy(getattr(result, name), kind)
        if self._leverages:
            columns |= zip(self._leverages, to_numpy(result.leverage_by_layer).T, strict=True)
        return columns

    def empty(self, ids: NDArray[Any]) -> Columns:
        """Return a table without rows, for a batch without a decodable image."""
        columns = {name: np.empty(0, kind) for name, kind in self._kinds.items()}
        return {"id": ids, **columns, **{name: np.empty(0) for name in self._leverages}}


def arrow_table(columns: Columns) -> Any:
    """Return columns as an Arrow table; those of objects are text, also where they are empty."""
    arrow = pyarrow()
    texts = {name: arrow.array(column, arrow.string()) for name, column in columns.items() if column.dtype == object}
    return arrow.table({**columns, **texts})


def score_writer(out: Path) -> Callable[[Path, Iterable[Columns]], None]:
    """Return the function that writes tables with the same columns to one file, in the format that ``out`` ends in."""
    if out.suffix == ".csv":
        return _write_csv
    if out.suffix == ".parquet":
        pyarrow(".parquet")  # now, not after hours
        return _write_parquet
    raise ValueError(f"{out} must end in .parquet or .csv")


def _write_parquet(path: Path, tables: Iterable[Columns]) -> None:
    arrow_tables = (arrow_table(columns) for columns in tables)
    first = next(arrow_tables)
    with pyarrow(".parquet").ParquetWriter(path, first.schema) as writer:
        writer.write_table(first)
        for table in arrow_tables:
            writer.write_table(table)


def _write_csv(path: Path, tables: Iterable[Columns]) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        write_csv(file, tables)


def write_csv(file: TextIO, tables: Iterable[Columns]) -> None:
    """Write tables with the same columns to an open file, as one CSV; ids are written by :func:`escape_formula`."""
    writer = csv.writer(file, lineterminator="\n")
    for number, columns in enumerate(tables):
        if number == 0:
            writer.writerow(columns)
        for start in range(0, len(columns["id"]), _ROWS_AT_ONCE):
            writer.writerows(_rows({name: one[start : start + _ROWS_AT_ONCE] for name, one in columns.items()}))


def _rows(columns: Columns) -> Iterator[tuple[object, ...]]:
    """Return the rows of a table, with Booleans written as true and false."""
    values = {name: column.tolist() for name, column in columns.items()}
    for name, column in columns.items():
        if column.dtype == bool:
            values[name] = ["true" if value else "false" for value in column]
    if columns["id"].dtype == object:
        values["id"] = [escape_formula(text) for text in columns["id"]]
    return zip(*values.values(), strict=True)


def escape_formula(text: str) -> str:
    """Return a text with an apostrophe before it where a spreadsheet would run it as a formula.

    >>> escape_formula("=1+1"), escape_formula("'-a"), escape_formula("a=1")
    ("'=1+1", "''-a", 'a=1')
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unescape_formula(text: str) -> str:
    """Return the text that :func:`escape_formula` was given."""
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
