"""Read a parquet file with a column of encoded images."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.io.images import bytes_of, image_columns
from pnml.io.parquet_files import open_parquet
from pnml_bench.data.selection import decode_contents

if TYPE_CHECKING:
    from pathlib import Path

    from pnml_bench.data.selection import Contents, Selection


def read_parquet(path: Path, selection: Selection) -> Contents:
    """Read the images of a parquet file, and its labels if every row has one.

    The images are the first column of bytes, or of structs with a field ``bytes`` as Hugging Face stores them. The
    labels are the first column of integers with "label" in its name. Rows are streamed: only the selected ones are
    kept.
    """
    table = open_parquet(path)
    image_column, label_column = image_columns(path, table.schema)
    columns = [name for name in (image_column, label_column) if name is not None]
    held = table.take(columns, selection.rows(table.count))
    labels = None if label_column is None else held[label_column]
    if labels is not None and None in labels:
        labels = None
    return decode_contents(
        [bytes_of(value) for value in held[image_column]],
        None if labels is None else np.asarray(labels, dtype=np.int64),
        table.count,
        size=selection.size,
    )
