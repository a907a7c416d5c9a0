"""The geometry at every condition, precision, chunk size and array library."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import array_api_strict as strict
import jax.numpy as jnp
import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch

from pnml.backend import rows as row_tools

from .strategies import EPS, fit, home, naive_leverage, same_leverage, with_singular_values

if TYPE_CHECKING:
    from .strategies import Matrix


def exact_leverage(rows: Matrix, x: Matrix) -> Matrix:
    """Solve with Σxxᵀ in 50 digits."""
    with mpmath.workdps(50):
        X = mpmath.matrix(rows.tolist())
        inverse = (X.T * X) ** -1
        columns = [mpmath.matrix(row.tolist()) for row in x]
        return np.array([float((column.T * inverse * column)[0]) for column in columns])


@pytest.mark.parametrize("condition", [1.0, 1e3, 1e6, 1e9, 1e12])
@pytest.mark.parametrize("shape", [(4, 4), (12, 5), (30, 8)])
def test_error_grows_no_faster_than_the_condition(shape: tuple[int, int], condition: float) -> None:
    rng = np.random.default_rng(4)
    rows = with_singular_values(np.geomspace(1, condition**-0.5, shape[1]), shape, rng)
    x = np.vstack([rows[:3], rng.normal(size=(3, shape[1]))])
    subspace = fit(rows)
    assert subspace.rank == shape[1]
    np.testing.assert_allclose(subspace.leverage(x), exact_leverage(rows, x), rtol=10 * EPS * condition)


@pytest.mark.parametrize("condition", [1e6, 1e12])
def test_error_in_many_dimensions(condition: float) -> None:
    rng = np.random.default_rng(5)
    rows = with_singular_values(np.geomspace(1, condition**-0.5, 100), (300, 100), rng)
    x = np.vstack([rows[:5], rng.normal(size=(5, 100))])
    same_leverage(fit(rows).leverage(x), naive_leverage(rows, x), rtol=10 * EPS * condition)


@pytest.mark.parametrize("small", [1e-6, 1e-10, 1e-12])
@pytest.mark.parametrize("width", [3, 342])
def test_a_row_that_leaves_the_span_is_outside_whatever_the_condition(width: int, small: float) -> None:
    basis, _ = np.linalg.qr(np.random.default_rng(6).normal(size=(width, 3)))
    subspace = fit(np.diag([1, math.sqrt(small)]) @ basis[:, :2].T)
    assert subspace.rank == 2
    leaving = basis[:, 0] + 1e-3 * basis[:, 2]
    assert subspace.xtg(leaving[None])[0] == 1


def test_exactly_dependent_float32_columns() -> None:
    rng = np.random.default_rng(7)
    free = rng.integers(0, 2**22, size=(3000, 4))
    rows = np.column_stack([free, free[:, 0] + free[:, 1], 2 * free[:, 2]]).astype(np.float32)
    subspace = fit(rows)
    assert subspace.rank == 4
    assert np.isfinite(subspace.leverage(rows)).all()
    unseen = np.array([[1, 1, 0, 0, -1, 0], [0, 0, 2, 0, 0, -1]], dtype=np.float32)
    np.testing.assert_array_equal(subspace.xtg(unseen), [1, 1])
    np.testing.assert_array_equal(subspace.xtg(rows[:2] + 1e6 * unseen), [1, 1])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_no_training_row_is_ever_outside(dtype: Any) -> None:
    rng = np.random.default_rng(8)
    for n_rows, rank, width in [(50, 3, 40), (500, 10, 64), (30, 30, 100)]:
        exact = rng.normal(size=(n_rows, rank)) @ rng.normal(size=(rank, width))
        subspace = fit(exact)
        assert subspace.rank == rank
        assert np.isfinite(subspace.leverage(exact.astype(dtype))).all()


@pytest.mark.parametrize("weakest", [1e-3, 1e-5, 1e-6])
def test_a_training_row_along_the_weakest_direction_is_inside(weakest: float) -> None:
    basis, _ = np.linalg.qr(np.random.default_rng(11).normal(size=(40, 40)))
    rows = np.diag(np.geomspace(1, weakest, 4)) @ basis[:, :4].T
    np.testing.assert_allclose(fit(rows).leverage(rows), 1, rtol=40 * EPS / weakest**2)


def test_a_training_row_that_is_unlike_the_others_by_less_than_rounding_is_inside() -> None:
    rows = np.tile([1.0, 0.0], (1000, 1))
    rows[0, 1] = 1e-7
    subspace = fit(rows)
    assert subspace.rank == 1
    np.testing.assert_allclose(subspace.leverage(rows), 1e-3, rtol=1e-9)


@pytest.mark.parametrize("scale", [1e-150, 1e-30, 1e30, 1e150])
def test_scaling_everything_changes_nothing(scale: float) -> None:
    rng = np.random.default_rng(9)
    rows, x = rng.normal(size=(8, 3)), rng.normal(size=(4, 3))
    same_leverage(fit(rows * scale).leverage(x * scale), np.asarray(fit(rows).leverage(x)), rtol=1e-12)


def test_a_leverage_beyond_float32_does_not_warn() -> None:
    subspace = fit(np.eye(2) * 1e-25)
    assert subspace.xtg(np.ones((1, 2), dtype=np.float32))[0] == 1
    assert subspace.leverage(np.ones((1, 2), dtype=np.float32))[0] == math.inf


@pytest.mark.parametrize("method", ["leverage", "xtg", "leave_one_out"])
def test_chunking_gives_the_same_numbers(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(10)
    rows = np.vstack([rng.normal(size=(20, 3)) @ rng.normal(size=(3, 5)), np.zeros((1, 5))])
    x = np.vstack([rows, rng.normal(size=(2, 5))])
    whole = getattr(fit(rows), method)(x)
    monkeypatch.setattr(row_tools, "_CHUNK_BYTES", 3 * 8 * 5)
    same_leverage(getattr(fit(rows), method)(x), whole, rtol=1e-13)


KINDS: list[tuple[Any, Any]] = [
    *((np, kind) for kind in (np.float16, np.float32, np.float64, np.int32)),
    *((torch, kind) for kind in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int32)),
    *((jnp, kind) for kind in (jnp.float16, jnp.bfloat16, jnp.float32, jnp.int32)),
    *((strict, kind) for kind in (strict.float32, strict.float64, strict.int32)),
]


@pytest.mark.parametrize("method", ["leverage", "xtg", "leave_one_out"])
@pytest.mark.parametrize(("library", "dtype"), KINDS)
def test_same_library_out_in_no_less_than_float32(library: Any, dtype: Any, method: str) -> None:
    subspace = fit(np.array([[4.0, 2, 0], [2, -4, 0], [4, 2, 0]]))
    x = library.asarray([[2, 1, 0], [4, 2, 0], [0, 0, 1], [8, 2, 0]], dtype=dtype)
    result = getattr(subspace, method)(x)
    assert type(result) is type(x)
    wide = dtype == library.float64 or (dtype == library.int32 and library is not jnp)
    assert result.dtype == (library.float64 if wide else library.float32)
    same_leverage(result, np.asarray(getattr(subspace, method)(home(x))), rtol=1e-12 if wide else 1e-6)
    assert getattr(subspace, method)(x[:0, :]).shape == (0,)


def test_the_answer_stays_on_the_device() -> None:
    elsewhere = strict.Device("device1")
    result = fit(np.eye(3)[:2]).xtg(strict.asarray([[1.0, 0, 0]], device=elsewhere))
    assert result.device == elsewhere


@pytest.mark.parametrize("library", [np, torch, jnp, strict])
def test_leave_one_out_of_independent_float32_rows_is_infinite(library: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(20, 64)).astype(np.float32)
    assert np.isinf(home(fit(rows).leave_one_out(library.asarray(rows)))).all()


def test_leave_one_out_of_ill_conditioned_independent_rows_is_infinite() -> None:
    for seed in range(10):
        rows = with_singular_values(np.geomspace(1, 1e-5, 4), (4, 6), np.random.default_rng(seed))
        assert np.isinf(fit(rows).leave_one_out(rows)).all()


@pytest.mark.parametrize("other", [1e-2, 1e-4])
def test_leave_one_out_of_a_row_that_nearly_stands_alone_is_finite(other: float) -> None:
    rows = np.array([[1.0, 0.0], [other, 0.0]])
    np.testing.assert_allclose(fit(rows).leave_one_out(rows), [other**-2, other**2], rtol=10 * EPS / other**2)
