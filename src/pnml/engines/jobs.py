"""What a worker of Ray does with a range of rows, and its results as rows of a Ray dataset."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from pnml.core.correlation import Correlation
from pnml.engines.local import Sums, score_rows, sum_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pnml.core.detector import Detector
    from pnml.io.source import Samples
    from pnml.io.store import PartStore

Row = dict[str, Any]
"""A row of a Ray dataset."""


@dataclass(frozen=True)
class SumJob:
    """Sum the statistic of a range; the attributes are the arguments of :func:`~pnml.engines.local.sum_rows`."""

    samples: Samples
    head: Detector

    def __call__(self, start: int, stop: int) -> Row:
        """Return the sums as a row; see :func:`row_to_sums`."""
        return sums_to_row(sum_rows(self.samples, start, stop, self.head))


@dataclass(frozen=True)
class ScoreJob:
    """Score and store a range; the attributes are the arguments of :func:`~pnml.engines.local.score_rows`."""

    samples: Samples
    detector: Detector
    store: PartStore
    by_layer: bool = False

    def __call__(self, start: int, stop: int) -> Row:
        """Return the summary as JSON in a row."""
        rows = [(start, stop)]
        return {"summary": score_rows(self.samples, rows, self.detector, self.store, by_layer=self.by_layer).to_json()}


def sums_to_row(sums: Sums) -> Row:
    """Return sums as a row, the statistic in its file format."""
    correlation = sums.correlation
    content = b""
    if correlation.count:
        with _temporary_file() as path:
            correlation.save(path)
            content = path.read_bytes()
    return {
        "statistic": content,
        "unit_norm": correlation.unit_norm,
        "n_classes": correlation.n_classes,
        "left_out": correlation.left_out,
        "skipped": json.dumps(sums.skipped),
    }


def row_to_sums(row: Row) -> Sums:
    """Return the sums that :func:`sums_to_row` wrote.

    >>> import numpy as np
    >>> rows = np.array([[3.0, 4.0], [0.0, 5.0]])
    >>> sums = row_to_sums(sums_to_row(Sums(Correlation().update(rows), ("a.png",))))
    >>> sums.correlation == Correlation().update(rows), sums.skipped
    (True, ('a.png',))
    """
    skipped = tuple(json.loads(row["skipped"]))
    if row["statistic"]:
        with _temporary_file() as path:
            path.write_bytes(row["statistic"])
            return Sums(Correlation.load(path), skipped)
    correlation = Correlation(unit_norm=row["unit_norm"], n_classes=row["n_classes"])
    correlation.left_out = row["left_out"]
    return Sums(correlation, skipped)


@contextmanager
def _temporary_file() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder) / "statistic.safetensors"
