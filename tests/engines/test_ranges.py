"""Ranges cover every row once and are read independently; their sums add up in a tree."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from pnml import Correlation
from pnml.engines.jobs import add_tables, reduce_in_tree, row_to_sums, sums_to_row
from pnml.engines.local import Sums
from pnml.engines.ranges import local_ranges, split_rows, worker_ranges
from pnml.io.embeddings import open_embeddings

from .files import embeddings, write_rows

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

SETTINGS = settings(deadline=None)
GROUPS = st.lists(st.integers(0, 60), min_size=1, max_size=30)


@SETTINGS
@given(GROUPS, st.integers(1, 25), st.integers(1, 5))
def test_split_rows_puts_every_row_in_one_range(groups: list[int], chunk_rows: int, chunks: int) -> None:
    starts = tuple(int(row) for row in np.cumsum([0, *groups[:-1]]))
    count = sum(groups)
    for allowed in (starts, ()):
        ranges = split_rows(count, chunk_rows, allowed, chunks)
        assert [row for start, stop in ranges for row in range(start, stop)] == list(range(count))
        assert all(start % chunk_rows == 0 for start, _ in ranges)
        assert all(stop - start >= chunks * chunk_rows for start, stop in ranges[:-1])


@SETTINGS
@given(GROUPS, st.integers(1, 25), st.integers(1, 5))
def test_split_rows_starts_less_than_a_chunk_after_a_row_group(groups: list[int], chunk_rows: int, chunks: int) -> None:
    starts = np.cumsum([0, *groups[:-1]])
    for start, _ in split_rows(sum(groups), chunk_rows, tuple(starts.tolist()), chunks):
        assert start - starts[starts <= start].max() < chunk_rows


def test_worker_ranges_read_32_times_the_bytes_of_their_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_rows(tmp_path / "wide.parquet", np.ones((5000, 64), np.float32), group=10)
    monkeypatch.setattr("pnml.io.embeddings.CHUNK_BYTES", 8 * 64 * 10)  # chunks of 10 rows
    samples = open_embeddings(path)
    assert all((stop - start) * 64 * 4 >= 32 * 64 * 64 * 8 for start, stop in worker_ranges(samples)[:-1])
    assert [stop - start for start, stop in local_ranges(samples)] == [160] * 31 + [40]


@SETTINGS
@given(st.lists(st.integers(), min_size=1, max_size=200), st.integers(2, 9))
def test_reduce_in_tree_adds_every_part_once_and_in_order(parts: list[int], branches: int) -> None:
    widths = []

    def add(*nodes: tuple[int, list[int]]) -> tuple[int, list[int]]:
        widths.append(len(nodes))
        return 1 + max(height for height, _ in nodes), [part for _, held in nodes for part in held]

    height, held = reduce_in_tree([(0, [part]) for part in parts], add, branches)
    assert held == parts
    assert height <= 1 + np.ceil(np.log(len(parts)) / np.log(branches))
    assert all(2 <= width <= branches for width in widths)


@settings(SETTINGS, max_examples=20)
@given(st.lists(st.integers(0, 100), min_size=1, max_size=20), st.booleans())
def test_sums_of_ranges_add_up_to_the_sum_of_all_rows(sizes: list[int], unit_norm: bool) -> None:  # noqa: FBT001
    rows = embeddings(sum(sizes) + 1)
    bounds = [0, *np.cumsum(sizes).tolist(), len(rows)]
    parts = []
    for number, (start, stop) in enumerate(pairwise(bounds)):
        statistic = Correlation(unit_norm=unit_norm)
        if stop > start:
            statistic.update(rows[start:stop])
        parts.append(pa.Table.from_pylist([sums_to_row(Sums(statistic, (f"{number}.png",)))]))
    (row,) = reduce_in_tree(parts, add_tables).to_pylist()
    total, skipped = row_to_sums(row)
    x = rows.astype(np.longdouble)
    lengths = np.sqrt((x * x).sum(axis=1))
    x = x / lengths[:, None] if unit_norm else x
    expected = (x.T @ x).astype(float)
    assert total.count == len(rows)
    assert total.unit_norm == unit_norm
    assert skipped == tuple(f"{number}.png" for number in range(len(parts)))
    np.testing.assert_allclose(total.matrix, expected, atol=1e-6 * np.abs(expected).max())  # of float32 rows
    np.testing.assert_allclose(total.norm_sum, float(lengths.sum()), rtol=1e-6)


def test_row_of_zero_embeddings_keeps_their_count() -> None:
    zeros = Correlation(unit_norm=True).update(np.zeros((3, 4)))
    tables = [pa.Table.from_pylist([sums_to_row(Sums(part, ()))]) for part in (zeros, zeros)]
    (row,) = add_tables(*tables).to_pylist()
    assert row_to_sums(row).correlation.left_out == 6
