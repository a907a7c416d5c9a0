"""The paper's four remarks on the regret, and its appendix A, in numbers."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.stats import norm

from pnml import SingleLayer, regret

from .strategies import fit, modest, probabilities, rounding, seeds, training_rows

if TYPE_CHECKING:
    from .strategies import Matrix

uncertain = probabilities().filter(lambda p: p.max() < 1 - 1e-6)


@modest
@given(training_rows(condition=1e3), uncertain)
def test_remark_1_and_2_regret_is_low_along_large_eigenvalues_and_high_along_small(rows: Matrix, p: Matrix) -> None:
    subspace = fit(rows)
    along = subspace.eigenvectors.T
    shares = subspace.xtg(along)
    seen = subspace.rank
    np.testing.assert_allclose(shares[:seen], 1 / (1 + subspace.eigenvalues[:seen]), rtol=rounding(rows))
    np.testing.assert_array_equal(shares[seen:], 1)
    regrets = regret(np.tile(p, (len(along), 1)), shares)
    assert (np.diff(regrets) >= -1e-12).all()


@modest
@given(uncertain)
def test_remark_1_regret_vanishes_with_xtg(p: Matrix) -> None:
    shares = np.array([1e-1, 1e-3, 1e-6, 1e-12])
    regrets = regret(np.tile(p, (4, 1)), shares)
    # The slope at 0 is Σ p (1 − p) log(1/p), so that the regret is no larger than xᵀg · log C, to first order.
    assert (regrets[1:] <= 1.01 * shares[1:] * math.log(len(p)) + 1e-300).all()


@modest
@given(probabilities())
def test_remark_2_limit_is_one_over_two_minus_p(p: Matrix) -> None:
    """The paper prints 1/(2 − p²), which no probabilities but 0 and 1 give."""
    possible = p[p > 0]
    limit = math.log(math.fsum(1 / (2 - possible)))
    assert regret(p, 1 - 1e-15) == pytest.approx(limit, abs=1e-12)
    if len(possible) > 1 and possible.max() < 0.99:
        assert limit > math.log(math.fsum(1 / (2 - possible**2))) + 1e-4


def test_remark_2_outside_the_span_the_regret_is_largest() -> None:
    subspace = fit(np.random.default_rng(0).normal(size=(100, 3)) @ np.eye(3, 5))
    p = np.array([0.7, 0.2, 0.1])
    inside, outside = np.array([[1.0, 1, 1, 0, 0]]), np.array([[1.0, 1, 1, 1e-3, 0]])
    assert regret(p[None], subspace.xtg(inside))[0] < 0.1
    assert regret(p[None], subspace.xtg(outside))[0] == pytest.approx(math.log(1 / 1.3 + 1 / 1.8 + 1 / 1.9))


@modest
@given(seeds, uncertain)
def test_remark_3_regret_falls_as_the_training_set_grows(seed: int, p: Matrix) -> None:
    rng = np.random.default_rng(seed)
    rows, x = rng.normal(size=(3000, 3)), rng.normal(size=(1, 3))
    shares = np.array([fit(rows[:n]).xtg(x)[0] for n in (1, 2, 3, 10, 30, 300, 3000)])
    assert (np.diff(shares) <= 1e-12).all()
    assert (np.diff(regret(np.tile(p, (len(shares), 1)), shares)) <= 1e-12).all()
    assert shares[0] == 1
    # For standard normal rows Σxxᵀ/N tends to the identity, and xᵀg to ‖x‖²/N.
    assert shares[-1] == pytest.approx(float((x**2).sum()) / 3000, rel=0.25)


@modest
@given(st.floats(0, 0.99))
def test_remark_4_regret_vanishes_far_from_the_decision_boundary(share: float) -> None:
    margins = np.array([0.0, 1.0, 10.0, 100.0, 1000.0, 1e5])
    log_p = -np.logaddexp(0, np.stack([-margins, margins], axis=1))
    regrets = regret(log_p, np.full(len(margins), share), log=True)
    assert (np.diff(regrets[2:]) <= 0).all()
    assert regrets[-1] == 0
    assert regret(np.array([1.0, 0.0]), share) == 0


def test_remark_4_holds_only_inside_the_span() -> None:
    """At xᵀg = 1 even a certain model is moved half-way by its opposite: log(1 + 1/2)."""
    assert regret(np.array([1.0, 0.0]), 1.0) == pytest.approx(math.log(1.5))
    margins = np.array([10.0, 100.0, 1000.0])
    log_p = -np.logaddexp(0, np.stack([-margins, margins], axis=1))
    np.testing.assert_allclose(regret(log_p, 1.0, log=True), math.log(1.5), atol=1e-4)


def test_remark_4_along_a_line_away_from_the_boundary() -> None:
    rng = np.random.default_rng(1)
    rows = np.vstack([rng.normal([2, 0], 1, size=(200, 2)), rng.normal([-2, 0], 1, size=(200, 2))])
    layer = SingleLayer().fit(rows, np.repeat([0, 1], 200))
    regrets = layer.regret(np.array([[0.0, 1.0], [2.0, 1.0], [10.0, 1.0]]))
    assert regrets[0] > regrets[1] > regrets[2]


def softmax_loss(theta: Matrix, rows: Matrix, labels: Matrix) -> Matrix:
    """1 − p of each row's true label, for weights given as a flat vector."""
    logits = rows @ theta.reshape(rows.shape[1], -1)
    log_p = logits - np.logaddexp.reduce(logits, axis=1, keepdims=True)
    return np.asarray(1 - np.exp(log_p[np.arange(len(rows)), labels]))


@pytest.mark.parametrize("deviation", [0.5, 1.0, 3.0])
def test_appendix_a_log_loss_and_squared_error_have_one_minimiser(deviation: float) -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(60, 2))
    labels = (rows[:, 0] + 1.5 * rng.normal(size=60) > 0).astype(int)  # inseparable: the minimiser is finite

    def squared_error(theta: Matrix) -> float:
        return float((softmax_loss(theta, rows, labels) ** 2).sum())

    def log_loss(theta: Matrix) -> float:
        return float(-norm.logpdf(softmax_loss(theta, rows, labels), scale=deviation).sum())

    def decision(loss: object) -> Matrix:
        theta = minimize(loss, np.zeros(4), method="BFGS", options={"gtol": 1e-7}).x.reshape(2, 2)
        return np.asarray(theta[:, 1] - theta[:, 0])  # a shift common to both classes changes no probability

    np.testing.assert_allclose(decision(log_loss), decision(squared_error), rtol=1e-4)
    cloud = rng.normal(size=(200, 4))
    order = np.argsort([squared_error(theta) for theta in cloud])
    np.testing.assert_array_equal(order, np.argsort([log_loss(theta) for theta in cloud]))


@modest
@given(training_rows(min_rows=3, condition=10.0), seeds, st.floats(0.1, 10))
def test_appendix_a_the_fitted_weights_minimise_the_gaussian_log_loss(
    rows: Matrix, seed: int, deviation: float
) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, size=len(rows))
    layer = SingleLayer().fit(rows, labels)
    targets = np.stack([layer.inverse_softmax(label) for label in labels])

    def log_loss(theta: Matrix) -> float:
        return float(-norm.logpdf(targets, loc=rows @ theta, scale=deviation).sum())

    best = log_loss(layer.theta)
    floor = best - 1e-12 * abs(best)
    for _ in range(5):
        step = rng.normal(size=layer.theta.shape) * np.abs(layer.theta).max()
        for size in (1e-3, 1.0):
            assert log_loss(layer.theta + size * step) >= floor
            assert log_loss(layer.theta - size * step) >= floor
