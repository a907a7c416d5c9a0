"""The geometry against the singular values of the rows themselves, in every shape and condition."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnml import Correlation, Subspace, regret
from pnml.core.subspace import leverage_inside

from .strategies import (
    fit,
    matrices,
    modest,
    naive_leverage,
    probabilities,
    rounding,
    rows_and_queries,
    same_leverage,
    seeds,
    training_rows,
)

if TYPE_CHECKING:
    from .strategies import Matrix


@modest
@given(rows_and_queries())
def test_leverage_equals_that_of_the_singular_values(case: tuple[Matrix, Matrix]) -> None:
    rows, x = case
    subspace = fit(rows)
    assert subspace.rank == np.linalg.matrix_rank(rows, tol=1e-9 * np.linalg.norm(rows))
    expected = naive_leverage(rows, x)
    same_leverage(subspace.leverage(x), expected, rtol=rounding(rows))
    finite = np.isfinite(expected)
    shares = np.divide(expected, 1 + expected, out=np.ones_like(expected), where=finite)
    np.testing.assert_allclose(subspace.xtg(x), shares, rtol=rounding(rows))


@modest
@given(rows_and_queries())
def test_xtg_lies_between_zero_and_one(case: tuple[Matrix, Matrix]) -> None:
    rows, x = case
    shares = fit(rows).xtg(x)
    assert (shares >= 0).all()
    assert (shares <= 1).all()
    assert (shares[: len(rows)] <= 0.5 * (1 + rounding(rows))).all(), "a row that was summed has leverage at most 1"


@modest
@given(rows_and_queries())
def test_the_gain_is_that_of_the_update_rule(case: tuple[Matrix, Matrix]) -> None:
    rows, x = case
    subspace = fit(rows)
    inverse = np.linalg.pinv(rows, rcond=1e-9)
    for row, share in zip(x, subspace.xtg(x), strict=True):
        gain = subspace.gain(row)
        assert row @ gain == pytest.approx(share, rel=rounding(rows))
        beyond, rtol = row - inverse @ (rows @ row), 10 * rounding(rows)
        if share == 1:
            expected = beyond / (beyond @ beyond)
            rtol *= float(np.linalg.norm(row) / np.linalg.norm(beyond))
        else:
            expected = inverse @ inverse.T @ row / (1 + row @ inverse @ inverse.T @ row)
        np.testing.assert_allclose(gain, expected, rtol=rtol, atol=rtol * np.abs(expected).max())


@modest
@given(rows_and_queries(), seeds)
def test_rotating_the_space_changes_nothing(case: tuple[Matrix, Matrix], seed: int) -> None:
    rows, x = case
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).normal(size=(rows.shape[1], rows.shape[1])))
    same_leverage(fit(rows @ rotation).leverage(x @ rotation), fit(rows).leverage(x), rtol=2 * rounding(rows))


@modest
@given(rows_and_queries(), probabilities(), st.floats(1, 1e6))
def test_a_longer_vector_never_has_less_regret(case: tuple[Matrix, Matrix], p: Matrix, factor: float) -> None:
    rows, x = case
    subspace = fit(rows)
    shorter, longer = (regret(np.tile(p, (len(x), 1)), subspace.xtg(v)) for v in (x, factor * x))
    assert (longer >= shorter * (1 - 1e-12)).all()


@modest
@given(st.integers(1, 5), st.data())
def test_more_rows_never_raise_a_leverage(width: int, data: st.DataObject) -> None:
    rows, more = data.draw(training_rows(n_features=width)), data.draw(training_rows(n_features=width))
    more *= np.abs(rows).max() / np.abs(more).max()
    both = np.vstack([rows, more])
    x = np.vstack([both, data.draw(matrices(3, width))])
    before, after = fit(rows).leverage(x), fit(both).leverage(x)
    assert (after <= before * (1 + rounding(rows) + rounding(both))).all()


@modest
@given(rows_and_queries(condition=10.0))
def test_float32_agrees_with_float64(case: tuple[Matrix, Matrix]) -> None:
    rows, x = case
    subspace = fit(rows)
    single = subspace.leverage(x.astype(np.float32))
    assert single.dtype == np.float32
    # Rounding x moves √h by ‖δx‖/σ_min at most, and √h is at least ‖x‖/σ_max.
    same_leverage(single, np.asarray(subspace.leverage(x)), rtol=4 * 10.0 * float(np.finfo(np.float32).eps))
    refitted = fit(rows.astype(np.float32))
    if len(rows) >= rows.shape[1] == refitted.rank == subspace.rank:
        # Rounding every row moves every singular value by √rank · ε · σ_max at most.
        bound = 8 * 10.0 * math.sqrt(rows.shape[1]) * float(np.finfo(np.float32).eps)
        same_leverage(refitted.leverage(x.astype(np.float32)), np.asarray(subspace.leverage(x)), rtol=bound)


@modest
@given(training_rows(min_rows=2, condition=10.0))
def test_leave_one_out_is_leaving_one_out(rows: Matrix) -> None:
    result = fit(rows).leave_one_out(rows)
    left = np.array([naive_leverage(np.delete(rows, n, axis=0), rows[n : n + 1])[0] for n in range(len(rows))])
    np.testing.assert_array_equal(np.isinf(result), np.isinf(left))
    finite = np.isfinite(left)
    error = np.abs(result[finite] - left[finite])
    assert (error <= 10 * rounding(rows) * left[finite] * (1 + left[finite])).all()


def test_leave_one_out_knows_the_only_row_of_its_direction() -> None:
    rows = np.array([[1.0, 0, 0], [1.0, 0, 0], [0, 3.0, 0]])
    np.testing.assert_allclose(fit(rows).leave_one_out(rows), [1, 1, math.inf])
    np.testing.assert_array_equal(fit(rows).leave_one_out(np.array([[0, 0, 1.0]])), [math.inf])


SHAPES = {"more rows": (40, 6), "as many rows": (6, 6), "fewer rows": (3, 6), "one row": (1, 6), "one feature": (5, 1)}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_every_shape(shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(1)
    rows, x = rng.normal(size=shape), rng.normal(size=(5, shape[1]))
    subspace = fit(rows)
    assert subspace.rank == min(shape)
    assert subspace.whitening.shape == (shape[1], min(shape))
    assert subspace.null_space.shape == (shape[1], shape[1] - min(shape))
    same_leverage(subspace.leverage(np.vstack([rows, x])), naive_leverage(rows, np.vstack([rows, x])), rtol=1e-9)
    np.testing.assert_allclose(rows @ subspace.null_space, 0, atol=1e-12)


@pytest.mark.parametrize("count", [1, 2, 3, 4, 9])
@pytest.mark.parametrize(("dtype", "rtol"), [("float64", 1e-11), ("float32", 1e-4)])
def test_blocks_of_wide_rows_lose_nothing(count: int, dtype: str, rtol: float) -> None:
    rng = np.random.default_rng(4)
    rows, x = rng.normal(size=(900, 300)), rng.normal(size=(count, 300))
    expected = (x * np.linalg.solve(rows.T @ rows, x.T).T).sum(axis=1)
    whitening = fit(rows).whitening.astype(dtype)
    np.testing.assert_allclose(leverage_inside(x.astype(dtype), whitening), expected, rtol=rtol)


def test_duplicated_rows_share_their_leverage() -> None:
    rows = np.random.default_rng(2).normal(size=(3, 5))
    np.testing.assert_allclose(fit(np.tile(rows, (7, 1))).leverage(rows), 1 / 7, rtol=1e-12)


def test_dead_coordinates_are_outside() -> None:
    rows = np.random.default_rng(3).normal(size=(50, 6))
    rows[:, [1, 4]] = 0
    subspace = fit(rows)
    assert subspace.rank == 4
    alive, dead = rows[:1], rows[:1] + 1e-3 * np.eye(6)[1]
    assert subspace.xtg(alive)[0] < 0.5
    assert subspace.xtg(dead)[0] == 1
    same_leverage(
        subspace.leverage(alive), np.asarray(fit(np.delete(rows, [1, 4], 1)).leverage(alive[:, [0, 2, 3, 5]])), 1e-12
    )


def test_rows_of_zeros_say_nothing() -> None:
    subspace = fit(np.zeros((4, 3)))
    assert subspace.rank == 0
    np.testing.assert_array_equal(subspace.xtg(np.array([[1.0, 0, 0], [0, 1e-9, 0]])), [1, 1])
    np.testing.assert_array_equal(subspace.xtg(np.zeros((1, 3))), [0])
    np.testing.assert_allclose(subspace.gain([0, 2.0, 0]), [0, 0.5, 0])
    np.testing.assert_array_equal(subspace.spectrum, np.zeros(3))


@pytest.mark.parametrize("method", ["leverage", "xtg", "leave_one_out"])
def test_refusals(method: str) -> None:
    ask = getattr(fit(np.eye(3)), method)
    with pytest.raises(ValueError, match="row 1 holds nan in column 2"):
        ask(np.array([[0, 0, 0], [0, 0, np.nan]]))
    with pytest.raises(ValueError, match="expected rows of 3 features, got 2"):
        ask(np.ones((1, 2)))
    with pytest.raises(ValueError, match=r"2-D .* got shape \(3,\)"):
        ask(np.ones(3))


def test_gain_refusals() -> None:
    subspace = fit(np.eye(3))
    with pytest.raises(ValueError, match="inf in column 0"):
        subspace.gain([math.inf, 0, 0])
    with pytest.raises(ValueError, match="expected rows of 3 features, got 2"):
        subspace.gain([1.0, 2.0])


def test_an_empty_statistic_has_no_geometry() -> None:
    with pytest.raises(ValueError, match="empty"):
        Subspace.fit(Correlation(3))


@modest
@given(training_rows())
def test_the_basis_is_orthonormal_and_the_spectrum_that_of_the_rows(rows: Matrix) -> None:
    subspace = fit(rows)
    width = rows.shape[1]
    assert subspace.n_features == width
    np.testing.assert_allclose(subspace.eigenvectors.T @ subspace.eigenvectors, np.eye(width), atol=1e-13)
    values = np.zeros(width)
    singular = np.linalg.svd(rows / math.sqrt(len(rows)), compute_uv=False)
    values[: len(singular)] = singular**2
    np.testing.assert_allclose(subspace.spectrum, values, atol=1e-13 * values[0])
    assert (np.diff(subspace.spectrum) <= 0).all()
    np.testing.assert_allclose(subspace.correlation, rows.T @ rows, atol=1e-13 * len(rows) * values[0])
    seen, unseen = subspace.whitening, subspace.null_space
    assert seen.shape[1] + unseen.shape[1] == width
    np.testing.assert_allclose(seen.T @ rows.T @ rows @ seen, np.eye(subspace.rank), atol=rounding(rows))
