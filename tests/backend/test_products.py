"""XᵀX and sums by class: added up in float64, by products in float32 where no direction drowns in their rounding."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from core.strategies import Matrix, home, modest, seeds
from pnml import Correlation
from pnml.backend.products import WEAKEST, allows_single, product, sum_by_class


@pytest.mark.parametrize("library", [np, torch])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("single", [False, True])
def test_products_are_those_of_float64_or_near(library: Any, dtype: str, *, single: bool) -> None:
    rows = np.random.default_rng(0).normal(size=(500, 7)).astype(dtype)
    found = product(library.asarray(rows), single=single)
    assert found.dtype == library.float64
    exact = rows.astype(np.float64).T @ rows.astype(np.float64)
    bound = 500 * 2.0**-23 if single else 500 * 2.0**-52
    np.testing.assert_allclose(home(found), exact, rtol=0, atol=bound * exact.max())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("unit_norm", [False, True])
def test_a_device_is_never_waited_for_but_once(dtype: torch.dtype, *, unit_norm: bool) -> None:
    """A meta tensor has no values: whatever looks at one raises."""
    rows = torch.empty(3000, 40, dtype=dtype, device="meta")
    assert product(rows, single=unit_norm).dtype == torch.float64


@modest
@given(seeds, st.floats(-9, -4))
def test_the_weakest_direction_about_the_mean_decides(seed: int, decade: float) -> None:
    """Of rows whose eigenvalues are known, wherever they lie."""
    rng = np.random.default_rng(seed)
    values = np.array([1.0, 0.5, 0.25, 10.0**decade])
    factor = np.linalg.qr(rng.normal(size=(200, 5)) * [0, 1, 1, 1, 1] + [1, 0, 0, 0, 0])[0][:, 1:]  # about its mean
    rows = (factor * np.sqrt(values)) @ np.linalg.qr(rng.normal(size=(4, 4)))[0]
    share = values[-1] / values.sum()
    if abs(np.log(share / WEAKEST)) > 0.1:
        assert allows_single(rows.astype(np.float32)) == (share > WEAKEST)
    assert not allows_single(rows)


def blocks(rows: Matrix) -> Correlation:
    return Correlation(n_classes=2).update(rows, np.arange(len(rows)) % 2)


def test_the_first_rows_decide_for_all_and_every_block_by_itself() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(5000, 6)).astype(np.float32)
    weak = rows * np.array([1, 1, 1, 1, 1, 1e-4], dtype=np.float32)
    assert blocks(rows)._single == [True]
    assert blocks(weak)._single == [False]
    assert blocks(rows.astype(np.float64))._single == [False]
    assert blocks(rows[:2000])._single is None, "too few to decide: in float64"
    later = blocks(rows).update(weak, np.zeros(5000))
    assert later._single == [True]
    assert Correlation().update(rows)._single is None, "the paper's are exact"


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
@pytest.mark.parametrize("n", [1, 50, 3000])
def test_rows_of_each_class_are_summed(library: Any, n: int) -> None:
    """Classes without rows have zeros."""
    rng = np.random.default_rng(0)
    rows, classes = rng.normal(size=(n, 7)), rng.integers(5, size=n)
    expected = np.zeros((6, 7))
    np.add.at(expected, classes, rows)
    np.testing.assert_allclose(home(sum_by_class(library.asarray(rows), classes, 6)), expected, rtol=1e-11, atol=1e-11)
    single = sum_by_class(library.asarray(rows.astype(np.float32)), classes, 6)
    assert single.dtype == library.float64
    np.testing.assert_allclose(home(single), expected, rtol=1e-5, atol=1e-4)
