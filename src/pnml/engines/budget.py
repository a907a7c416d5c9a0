"""How many rows are worked on at once, so that memory stays within a budget whatever the rows are."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from pnml.io.source import RowReader, Samples

    S = TypeVar("S", bound=Samples)

BUDGET = 256 << 20
"""The memory that a run takes for rows, besides that for the libraries and the detector."""

# Numbers of float64 that are held at the same time for every feature and every class of a row, copies included: while
# it is read and joined, and on all cores together while it is scored. Measured, and rounded up.
_COPIES_OF_FEATURES = 5
_COPIES_OF_LOGITS = 5
_COPIES_OF_ID = 8  # as it is read, as text, in the table, and encoded
_ROW = 512  # the bytes of a row's scores, of its place in lists, ...

# Shares of the budget; what is left is for buffers, whose size does not depend on the rows.
_CHUNK = BUDGET // 2
_TABLE = BUDGET // 16
_IDS = BUDGET // 8


def within_budget(samples: S, n_classes: int) -> S:
    """Return the samples in chunks that keep to the budget; images come in batches of the size that was asked for."""
    reader = samples.reader
    if not reader.width:
        return samples
    numbers = _COPIES_OF_FEATURES * sum(reader.widths) + _COPIES_OF_LOGITS * n_classes
    row_bytes = 8 * numbers + _COPIES_OF_ID * reader.id_bytes + _ROW
    return replace(samples, chunk_rows=min(samples.chunk_rows, max(1, _CHUNK // row_bytes)))


def table_rows(reader: RowReader) -> int:
    """Return how many rows of a table of scores, with the leverages of all layers, keep to their share of the budget.

    The table is held four times while it is stored: in chunks, joined, as a file, and as the bytes of that.
    """
    return max(1, _TABLE // (8 * (16 + len(reader.layers)) + 4 * reader.id_bytes))


def check_ids(characters: int, samples: Samples, start: int, stop: int) -> None:
    """Raise ``ValueError`` if the ids of a range of rows, which are stored together, exceed their share of the budget.

    Ranges are made for the average id: this is about files in which few rows have nearly all the text.
    """
    if characters > _IDS:
        raise ValueError(
            f"the ids of rows {start:,} to {stop:,} of {samples.path} have {characters:,} characters, where at most "
            f"{_IDS:,} are expected: shorten them"
        )
