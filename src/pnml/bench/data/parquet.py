"""Read a parquet file with a column of encoded images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.backend.extras import require
from pnml.bench.data.selection import decode_contents
from pnml.io.images import bytes_of, image_columns

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.bench.data.selection import Contents, Selection

_BATCH_ROWS = 1024


def read_parquet(path: Path, selection: Selection) -> Contents:
    """Read the images of a parquet file, and its labels if every row has one.

    The images are the first column of bytes, or of structs with a field ``bytes`` as Hugging Face stores them. The
    labels are the first column of integers with "label" in its name. Rows are streamed: only the selected ones are
    kept.
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
        for batch in file.iter_batches(batch_size=_BATCH_ROWS, columns=columns):
            end = start + batch.num_rows
            selected = batch.take(rows[(rows >= start) & (rows < end)] - start)
            encoded += [bytes_of(value) for value in selected.column(image_column).to_pylist()]
            if label_column is not None:
                labels += selected.column(label_column).to_pylist()
            start = end
    labelled = label_column is not None and None not in labels
    return decode_contents(
        encoded, np.asarray(labels, dtype=np.int64) if labelled else None, total, size=selection.size
    )
