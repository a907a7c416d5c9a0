"""Compute tables of scores, and write them as parquet or CSV."""

from __future__ import annotations

import csv
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pnml.backend.arrays import to_numpy
from pnml.backend.extras import require
from pnml.core.theorem import log_softmax

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from pnml.core.detector import Detector
    from pnml.io.source import Chunk
    from pnml.io.store import Columns

_COLUMNS = ("prediction", "probability", "regret", "p_value", "is_ood")


def score_chunk(chunk: Chunk, detector: Detector) -> Columns:
    """Return the table of scores of a chunk; prediction and probability are the model's own where it ran."""
    if not len(chunk.ids):  # every image was skipped: no rows, but the same columns
        one_row = replace(
            chunk, embeddings=np.ones((1, detector.n_features), np.float32), logits=np.ones((1, 1)), ids=np.zeros(1)
        )
        return {name: column[:0] for name, column in score_chunk(one_row, detector).items()} | {"id": chunk.ids}
    table = detector(chunk.embeddings).to_table()
    if chunk.logits is not None:
        log_p = log_softmax(to_numpy(chunk.logits))
        table.update(prediction=log_p.argmax(axis=-1), probability=np.exp(log_p.max(axis=-1)))
    return {"id": chunk.ids, **{name: table[name] for name in _COLUMNS if name in table}}


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
