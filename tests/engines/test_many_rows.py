"""A header that claims more rows than any disk holds plans no work for them: no list of ranges, and one line."""

from __future__ import annotations

import io
import tracemalloc
import zipfile
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pnml.engines.budget import BUDGET, table_rows
from pnml.engines.local import score
from pnml.engines.ranges import local_ranges
from pnml.io.embeddings import EmbeddingFile, open_embeddings

from .files import FEATURES, embeddings, fitted

if TYPE_CHECKING:
    from pathlib import Path

MANY = 10**15


@pytest.fixture
def small(tmp_path: Path) -> EmbeddingFile:
    path = tmp_path / "rows.npy"
    np.save(path, embeddings(10))
    return open_embeddings(path)


def with_count(samples: EmbeddingFile, count: int, chunk_rows: int) -> EmbeddingFile:
    return replace(samples, chunk_rows=chunk_rows, reader=replace(samples.reader, count=count))


def lying_archive(path: Path) -> Path:
    """Write an archive whose header and whose directory both claim rows that are not there."""
    member = io.BytesIO()
    kind: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": (MANY, FEATURES)}
    np.lib.format.write_array_header_1_0(member, kind)
    member.write(embeddings(10).tobytes())
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("embedding.npy", member.getvalue())
        archive.filelist[0].file_size = 128 + 4 * MANY * FEATURES
    return path


def test_an_archive_that_lies_twice_is_refused_before_anything_is_planned(tmp_path: Path) -> None:
    samples = open_embeddings(lying_archive(tmp_path / "lies.npz"))
    assert samples.count == MANY
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"lies\.npz has 1,000,000,000,000,000 rows, where at most [\d,]+ are scored"):
        score(samples, fitted(), tmp_path / "out.csv", progress=False)
    assert tracemalloc.get_traced_memory()[1] < BUDGET
    tracemalloc.stop()
    assert [file.name for file in tmp_path.iterdir()] == ["lies.npz"]


@pytest.mark.parametrize("chunk_rows", [1, 7, 1000, 10**6])
@pytest.mark.parametrize("count", [10**6, 10**8, 10**10])
def test_ranges_are_few_enough_to_be_listed_and_short_enough_to_be_held(
    small: EmbeddingFile, count: int, chunk_rows: int
) -> None:
    samples = with_count(small, count, chunk_rows)
    ranges = local_ranges(samples)
    assert len(ranges) <= 250_000
    assert (ranges[0][0], ranges[-1][1]) == (0, count)
    assert all(stop - start <= max(chunk_rows, table_rows(samples.reader)) for start, stop in ranges)
    assert all(before[1] == after[0] for before, after in pairwise(ranges))
