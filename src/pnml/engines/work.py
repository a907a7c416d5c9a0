"""What a worker does with a piece of the input: plain functions of the rows from ``start`` to before ``stop``."""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.correlation import Correlation
from pnml.engines.summary import Summary
from pnml.io.chunk import Chunk, check
from pnml.io.scores import score_chunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pnml.core.detector import Detector
    from pnml.io.chunk import Samples
    from pnml.io.parts import Columns
    from pnml.io.shards import Shards

Row = dict[str, Any]
"""A row of a Ray dataset."""


@dataclass(frozen=True)
class Summing:
    """Sum the statistic of a piece.

    Attributes:
        samples: what is read.
        n_features: the width the embeddings must have; any when None.
        unit_norm: scale every row to norm 1.
    """

    samples: Samples
    n_features: int | None
    unit_norm: bool

    def __call__(self, start: int, stop: int) -> Row:
        """Give the partial statistic as a row; see :func:`statistic_of`."""
        statistic = Correlation(unit_norm=self.unit_norm)
        skipped: list[str] = []
        for chunk in chunks_between(self.samples, start, stop):
            check(chunk, self.samples.path, self.n_features, unit_norm=self.unit_norm)
            skipped += chunk.skipped
            if len(chunk.ids):
                statistic.update(chunk.embeddings)
        return as_row(statistic, skipped)


@dataclass(frozen=True)
class Scoring:
    """Score a piece, and write the scores as a shard.

    Attributes:
        samples: what is read.
        detector: fitted.
        shards: where the scores go.
    """

    samples: Samples
    detector: Detector
    shards: Shards

    def __call__(self, start: int, stop: int) -> Row:
        """Give the :class:`~pnml.engines.summary.Summary` as JSON in a row; a shard that is there is left as it is."""
        facts = self.shards.facts(start, stop)
        if facts is None:
            facts = self._score(start, stop)
        return {"summary": json.dumps(facts)}

    def _score(self, start: int, stop: int) -> dict[str, Any]:
        tables: list[Columns] = []
        skipped: list[str] = []
        for chunk in chunks_between(self.samples, start, stop):
            skipped += chunk.skipped
            if len(chunk.ids):
                check(chunk, self.samples.path, self.detector.n_features)
                tables.append(score_chunk(chunk, self.detector))
        if not tables:  # not one image decodes: a table of no rows, but of the same columns
            shape = 1, self.detector.n_features
            some = Chunk(0, np.zeros(1, int), np.zeros(1, str), np.ones(shape, np.float32), np.ones((1, 2)))
            tables.append({name: column[:0] for name, column in score_chunk(some, self.detector).items()})
        columns = {name: np.concatenate([table[name] for table in tables]) for name in tables[0]}
        facts = Summary.of(columns, skipped).to_json()
        self.shards.write(start, stop, columns, facts)
        return facts


def chunks_between(samples: Samples, start: int, stop: int) -> Iterator[Chunk]:
    """Yield the chunks of a piece, which ends where one of them does."""
    for chunk in samples.chunks(start):
        yield chunk
        if chunk.stop >= stop:
            break
    if chunk.stop != stop:
        raise ValueError(
            f"the rows {start} to {stop} of {samples.path} end at {chunk.stop}: it changed while it was read"
        )


def as_row(statistic: Correlation, skipped: list[str]) -> Row:
    """Put a statistic, as its own file format has it, and the names of images that did not decode into a row."""
    content = b""
    if statistic.count:
        with _file() as path:
            statistic.save(path)
            content = path.read_bytes()
    return {"statistic": content, "unit_norm": statistic.unit_norm, "skipped": json.dumps(skipped)}


def statistic_of(row: Row) -> tuple[Correlation, list[str]]:
    """Read what :func:`as_row` wrote.

    >>> rows = np.array([[3.0, 4.0], [0.0, 5.0]])
    >>> statistic, skipped = statistic_of(as_row(Correlation().update(rows), ["a.png"]))
    >>> statistic == Correlation().update(rows), skipped
    (True, ['a.png'])
    """
    skipped = json.loads(row["skipped"])
    if not row["statistic"]:
        return Correlation(unit_norm=row["unit_norm"]), skipped
    with _file() as path:
        path.write_bytes(row["statistic"])
        return Correlation.load(path), skipped


@contextmanager
def _file() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder) / "statistic.safetensors"
