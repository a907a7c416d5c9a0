"""XᵀX on the host and elsewhere: the same sums, without a look at the values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.strategies import EPS, Matrix, home, modest, training_rows
from pnml import Correlation
from pnml.backend import rows as row_tools
from pnml.backend.products import sum_by_class, sum_of_products


@pytest.mark.parametrize("unit_norm", [False, True])
@pytest.mark.parametrize("library", [np, torch])
@pytest.mark.parametrize("chunk_bytes", [300, 1 << 22])
def test_every_library_and_chunk_gives_the_same_sum(
    library: Any, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch, *, unit_norm: bool
) -> None:
    monkeypatch.setattr(row_tools, "_CHUNK_BYTES", chunk_bytes)
    rows = np.random.default_rng(0).normal(size=(100, 7)).astype(np.float32)
    products, lengths = sum_of_products(library.asarray(rows), unit_norm=unit_norm)
    norms = np.linalg.norm(rows.astype(np.float64), axis=1)
    scaled = rows / norms[:, None] if unit_norm else rows.astype(np.float64)
    np.testing.assert_allclose(home(lengths), norms, rtol=1e-12)
    np.testing.assert_allclose(home(products), scaled.T @ scaled, rtol=1e-12, atol=1e-10)


@modest
@given(training_rows(max_rows=30), st.integers(1, 400), st.booleans())
def test_the_sum_is_that_of_outer_products(rows: Matrix, chunk_bytes: int, in_torch: bool) -> None:  # noqa: FBT001
    before = row_tools._CHUNK_BYTES
    row_tools._CHUNK_BYTES = chunk_bytes
    try:
        products, _ = sum_of_products(torch.tensor(rows) if in_torch else rows, unit_norm=False)
    finally:
        row_tools._CHUNK_BYTES = before
    naive = sum(np.outer(row, row) for row in rows)
    assert (np.abs(home(products) - naive) <= 4 * len(rows) * EPS * (np.abs(rows).T @ np.abs(rows))).all()


def test_the_sum_of_numpy_rows_is_symmetric() -> None:
    products, _ = sum_of_products(np.random.default_rng(0).random((100, 5)), unit_norm=True)
    np.testing.assert_array_equal(products, products.T)


@pytest.mark.parametrize("width", [3, 256, 257, 258, 300])
@pytest.mark.parametrize("chunk_bytes", [1, 40_000, 1 << 22])
@pytest.mark.parametrize("unit_norm", [False, True])
def test_blocks_on_and_above_the_diagonal_make_the_whole(
    width: int, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch, *, unit_norm: bool
) -> None:
    """As it is done on a GPU, in one chunk or several."""
    monkeypatch.setattr(row_tools, "_CHUNK_BYTES", chunk_bytes)
    rows = torch.randn(50, width, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    products, norms = sum_of_products(rows, unit_norm=unit_norm)
    assert isinstance(products, torch.Tensor)
    np.testing.assert_allclose(norms, np.linalg.norm(rows, axis=1), rtol=1e-14)
    scaled = torch.nn.functional.normalize(rows) if unit_norm else rows
    np.testing.assert_allclose(home(products), home(scaled.T @ scaled), rtol=1e-12, atol=1e-12)
    assert torch.equal(products, products.T)


@pytest.mark.parametrize("width", [40, 512])
@pytest.mark.parametrize("unit_norm", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_device_is_never_waited_for(dtype: torch.dtype, width: int, *, unit_norm: bool) -> None:
    """A meta tensor has no values: whatever looks at one raises."""
    products, lengths = sum_of_products(torch.empty(3000, width, dtype=dtype, device="meta"), unit_norm=unit_norm)
    assert (products.shape, products.dtype) == ((width, width), torch.float64)
    assert (lengths.shape, lengths.dtype) == ((3000,), torch.float64)


def test_rows_without_length_among_ordinary_ones_are_counted_as_they_are() -> None:
    rows = np.array([[0.0, 0.0], [3.0, 4.0], [1e-180, 0.0]])
    statistic = Correlation().update(rows)
    np.testing.assert_array_equal(statistic.matrix, [[9, 12], [12, 16]])
    assert statistic.norm_sum == pytest.approx(5, rel=1e-15)
    assert Correlation().update(rows[2:]).norm_sum == pytest.approx(1e-180, rel=1e-14, abs=0)


def test_a_row_too_short_to_be_scaled_is_left_out() -> None:
    statistic = Correlation(unit_norm=True).update(np.array([[1.0, 1.0], [1e-310, 0.0]]))
    assert (statistic.count, statistic.left_out) == (1, 1)


@pytest.mark.parametrize("library", [np, torch])
@pytest.mark.parametrize("chunk_bytes", [1, 1 << 22])
@pytest.mark.parametrize("n", [1, 50, 3000])
def test_rows_of_each_class_are_summed(library: Any, chunk_bytes: int, n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each layer divided by what is given for it; classes without rows have zeros."""
    monkeypatch.setattr(row_tools, "_CHUNK_BYTES", chunk_bytes)
    rng = np.random.default_rng(0)
    rows, classes = rng.normal(size=(n, 7)), rng.integers(5, size=n)
    norms = [rng.uniform(0.5, 2, size=n) for _ in range(2)]
    expected, plain = np.zeros((6, 7)), np.zeros((6, 7))
    np.add.at(expected, classes, np.hstack([rows[:, :4] / norms[0][:, None], rows[:, 4:] / norms[1][:, None]]))
    np.add.at(plain, classes, rows)
    x, by = library.asarray(rows), [library.asarray(norm) for norm in norms]
    np.testing.assert_allclose(home(sum_by_class(x, (4, 3), by, classes, 6)), expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(home(sum_by_class(x, (4, 3), None, classes, 6)), plain, rtol=1e-11, atol=1e-11)
    single = sum_by_class(library.asarray(rows.astype(np.float32)), (7,), None, classes, 6)
    assert single.dtype == library.float64
    np.testing.assert_allclose(home(single), plain, rtol=1e-5, atol=1e-4)
