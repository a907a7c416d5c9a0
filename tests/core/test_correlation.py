"""The statistic: any batches of any library add up to Σxxᵀ, and a bad batch changes nothing."""

from __future__ import annotations

import gc
import tracemalloc
import weakref
from typing import TYPE_CHECKING, Any

import array_api_strict as strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pnml import Correlation
from pnml.backend import rows as row_tools
from pnml.core.sample import SIZE

from .strategies import EPS, matrices, modest, training_rows

if TYPE_CHECKING:
    from pathlib import Path

    from .strategies import Matrix

ROWS = np.array([[1.0, 2.0, -3.0], [0.5, 0.0, 4.0], [2.0, -1.0, 0.25], [8.0, 1.0, 1.0]])
SQUARE = ROWS.T @ ROWS
LIBRARIES = [np, torch, jnp, strict]


def statistic() -> Correlation:
    return Correlation().update(ROWS)


@st.composite
def partitioned(draw: st.DrawFn) -> tuple[Matrix, list[Matrix]]:
    """Rows, and the same rows in any order cut anywhere, empty parts included."""
    rows = draw(training_rows(max_rows=20))
    order = draw(st.permutations(range(len(rows))))
    cuts = sorted(draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    return rows, np.split(rows[list(order)], cuts)


def close(first: Correlation, second: Correlation, rows: Matrix) -> None:
    assert first.count == second.count
    scale = np.abs(rows).T @ np.abs(rows)
    assert (np.abs(first.matrix - second.matrix) <= 1e-12 * scale).all()
    assert first.mean_norm == pytest.approx(second.mean_norm, rel=1e-12, abs=0)


@modest
@given(partitioned())
def test_batches_in_any_order_equal_one_pass(case: tuple[Matrix, list[Matrix]]) -> None:
    rows, parts = case
    streamed = Correlation()
    for part in parts:
        streamed.update(part)
    close(streamed, Correlation().update(rows), rows)


@modest
@given(case=partitioned(), data=st.data(), unit_norm=st.booleans())
def test_merging_any_tree_of_parts_equals_one_pass(
    case: tuple[Matrix, list[Matrix]], data: st.DataObject, *, unit_norm: bool
) -> None:
    rows, parts = case
    heap = [Correlation(unit_norm=unit_norm).update(part) for part in parts]
    while len(heap) > 1:
        first = heap.pop(data.draw(st.integers(0, len(heap) - 1)))
        second = heap.pop(data.draw(st.integers(0, len(heap) - 1)))
        heap.append(first + second)
    scaled = rows / np.linalg.norm(rows, axis=1, keepdims=True) if unit_norm else rows
    close(heap[0], Correlation(unit_norm=unit_norm).update(rows), scaled)


@modest
@given(training_rows())
def test_the_sum_is_symmetric_and_that_of_outer_products(rows: Matrix) -> None:
    matrix = Correlation().update(rows).matrix
    naive = sum(np.outer(row, row) for row in rows)
    assert (np.abs(matrix - naive) <= 4 * len(rows) * EPS * (np.abs(rows).T @ np.abs(rows))).all()
    np.testing.assert_array_equal(matrix, matrix.T)


@modest
@given(st.integers(1, 6).flatmap(lambda width: matrices(7, width)))
def test_float32_rows_are_summed_without_loss(rows: Matrix) -> None:
    single = rows.astype(np.float32)
    matrix = Correlation().update(single).matrix
    np.testing.assert_array_equal(matrix, Correlation().update(single.astype(np.float64)).matrix)
    # Rounding each value by half an ε of float32 moves each product by one ε of it.
    moved = np.abs(matrix - Correlation().update(rows).matrix)
    assert (moved <= 1.01 * np.finfo(np.float32).eps * (np.abs(rows).T @ np.abs(rows))).all()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int64", "uint8", "bool", ">f8", ">f4"])
def test_every_dtype_is_summed_in_float64(dtype: str) -> None:
    rows = np.arange(12).reshape(4, 3).astype(dtype)
    wide = rows.astype(np.float64)
    result = Correlation().update(rows)
    assert result.matrix.dtype == np.float64
    np.testing.assert_array_equal(result.matrix, wide.T @ wide)


def test_half_precision_does_not_overflow() -> None:
    rows = np.full((3, 2), 60_000, dtype=np.float16)
    np.testing.assert_array_equal(Correlation().update(rows).matrix, np.full((2, 2), 3 * float(rows[0, 0]) ** 2))


@pytest.mark.parametrize(
    ("library", "dtype"),
    [
        *((torch, name) for name in ("float16", "bfloat16", "float32", "float64", "int32")),
        *((jnp, name) for name in ("float16", "bfloat16", "float32", "int32")),
        *((strict, name) for name in ("float32", "float64", "int32")),
    ],
)
def test_every_library_gives_the_sum_of_numpy(library: Any, dtype: str) -> None:
    rows = library.asarray(ROWS * 4, dtype=getattr(library, dtype))
    np.testing.assert_array_equal(Correlation().update(rows).matrix, SQUARE * 16)


@pytest.mark.parametrize("library", LIBRARIES)
def test_unit_norm_scales_each_row_and_remembers_its_length(library: Any) -> None:
    result = Correlation(unit_norm=True).update(library.asarray(ROWS, dtype=library.float32))
    norms = np.linalg.norm(ROWS, axis=1)
    scaled = ROWS / norms[:, None]
    np.testing.assert_allclose(result.matrix, scaled.T @ scaled, rtol=1e-6)
    assert np.trace(result.matrix) == pytest.approx(4, rel=1e-6)
    assert result.mean_norm == pytest.approx(norms.mean(), rel=1e-6)


def test_one_statistic_takes_batches_of_all_libraries() -> None:
    mixed = Correlation()
    for library in [*LIBRARIES, *LIBRARIES]:
        mixed.update(library.asarray(ROWS))
    np.testing.assert_array_equal(mixed.matrix, 8 * SQUARE)
    assert mixed.count == 32
    assert mixed.mean_norm == pytest.approx(np.linalg.norm(ROWS, axis=1).mean(), rel=1e-6)


def test_torch_batches_are_summed_where_they_are() -> None:
    result = Correlation().update(torch.tensor(ROWS))
    merged = result + statistic()
    np.testing.assert_array_equal(merged.matrix, 2 * SQUARE)
    np.testing.assert_array_equal(result.update(ROWS).matrix, 2 * SQUARE)


def test_lists_and_empty_batches() -> None:
    result = Correlation().update(ROWS.tolist()).update(np.zeros((0, 3)))
    assert result == statistic()


def test_memory_is_that_of_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tools, "_CHUNK_BYTES", 1 << 16)
    width, rows = 32, np.ones((20_000, 32), dtype=np.float32)
    state = Correlation().update(rows)  # starts threads, once
    tracemalloc.start()
    try:
        for _ in range(5):
            state.update(rows)
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4 * 8 * width**2 + SIZE * (8 + 4 * width + 8)  # a few matrices, and the sample
    # Beside one byte per value and a few numbers per row, a few chunks: not a float64 copy of the batch.
    assert peak < rows.size + 4 * 8 * len(rows) + 8 * (1 << 16)


def test_a_batch_that_has_a_gradient_is_let_go() -> None:
    batch = torch.tensor(ROWS, requires_grad=True)
    state = Correlation().update(batch)
    assert state.mean_norm == pytest.approx(np.linalg.norm(ROWS, axis=1).mean())
    alive = weakref.ref(batch)
    del batch
    gc.collect()
    assert alive() is None


def test_the_matrix_handed_out_is_not_the_state() -> None:
    state = statistic()
    state.matrix[:] = 0
    assert state == statistic()


def test_merging_leaves_the_parts_alone() -> None:
    first, second = statistic(), statistic()
    merged = first + second
    merged.update(ROWS)
    assert first == second == statistic()
    assert merged.count == 12


def test_empty_statistics(tmp_path: Path) -> None:
    empty = Correlation()
    assert empty.count == 0
    assert empty.mean_norm == 0
    assert empty == Correlation()
    assert empty + statistic() == statistic() == statistic() + empty
    assert (empty + Correlation()).count == 0
    with pytest.raises(ValueError, match="empty: call update"):
        _ = empty.matrix
    empty.save(tmp_path / "empty")
    assert Correlation.load(tmp_path / "empty") == empty
    assert repr(Correlation(5)) == "Correlation(n_features=5, count=0, unit_norm=False)"
    of_numpy: list[Any] = [np.int64(5), np.array([3, 2])]
    assert {repr(Correlation(width)) for width in of_numpy} == {repr(Correlation(5))}
    with pytest.raises(ValueError, match="expected rows of 5 features, got 3"):
        Correlation(5).update(ROWS)


def test_equality() -> None:
    assert statistic() == statistic()
    assert statistic() != Correlation().update(ROWS[::-1] * 2)
    assert statistic() != Correlation().update(ROWS[:2])
    assert statistic() != Correlation()
    assert Correlation(2) != Correlation(3)
    assert statistic() != "a statistic"
    with pytest.raises(TypeError, match="unhashable"):
        hash(statistic())


def test_equality_sees_the_norms() -> None:
    assert Correlation(unit_norm=True).update(ROWS) != Correlation(unit_norm=True).update(2 * ROWS)


@pytest.mark.parametrize("unit_norm", [False, True])
def test_save_and_load(tmp_path: Path, *, unit_norm: bool) -> None:
    saved = Correlation(unit_norm=unit_norm).update(torch.tensor(ROWS))
    saved.save(tmp_path / "statistic")
    loaded = Correlation.load(tmp_path / "statistic")
    assert loaded == saved
    assert loaded.mean_norm == pytest.approx(saved.mean_norm, rel=1e-15, abs=0)
    assert loaded.update(ROWS) == saved.update(ROWS)
    assert loaded.update(torch.tensor(ROWS)) == saved.update(torch.tensor(ROWS))
