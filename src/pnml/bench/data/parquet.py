"""Any parquet file with a column of pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.backend.extras import require
from pnml.bench.data.gather import gather
from pnml.io.decode import resize_to
from pnml.io.images import bytes_of, image_columns

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.bench.data.selection import Contents, Selection

_ROWS = 1024  # read at a time


def read_parquet(path: Path, selection: Selection, *, strict: bool = False) -> Contents:
    """Read the pictures, and the labels if there are any, of a parquet file.

    The pictures are the first column of bytes, or of structs with a field ``bytes`` as Hugging Face stores them. The
    labels are the first column of integers with "label" in its name, if every row has one.

    Args:
        path: the file; rows that are not selected are streamed past.
        selection: which rows, resized to ``selection.size`` if it is given.
        strict: raise on the first picture that does not decode, instead of leaving it out.
    """
    parquet = require("pyarrow.parquet", extra="parquet", what="reading parquet")
    encoded: list[bytes] = []
    labels: list[int | None] = []
    with parquet.ParquetFile(path) as file:
        image_column, label_column = image_columns(path, file.schema_arrow)
        total = file.metadata.num_rows
        rows = selection.rows(total)
        start = 0
        columns = [name for name in (image_column, label_column) if name is not None]
        for batch in file.iter_batches(batch_size=_ROWS, columns=columns):
            end = start + batch.num_rows
            chosen = batch.take(rows[(rows >= start) & (rows < end)] - start)
            encoded += [bytes_of(value) for value in chosen.column(image_column).to_pylist()]
            if label_column is not None:
                labels += chosen.column(label_column).to_pylist()
            start = end
    whole = label_column is not None and None not in labels
    fit = None if selection.size is None else resize_to(selection.size)
    return gather(encoded, np.asarray(labels, dtype=np.int64) if whole else None, total, fit=fit, strict=strict)
