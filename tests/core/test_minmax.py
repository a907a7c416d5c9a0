"""Theorem 1: the pNML probabilities have the same regret for every label, and no others a smaller worst one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnml import SingleLayer, genie, predictive, regret

from .strategies import modest, seeds

if TYPE_CHECKING:
    from .strategies import Matrix


def softmax(logits: list[float]) -> Matrix:
    return np.asarray(np.exp(logits) / np.exp(logits).sum())


uncertain = st.lists(st.floats(-7, 7), min_size=2, max_size=8).map(softmax)
shares = st.floats(0, 1)


def losses(q: Matrix, of_genie: Matrix) -> Matrix:
    """Return the regret of a learner q for every label: how much larger its log-loss is than that of the genie."""
    return np.asarray(np.log(of_genie) - np.log(q))


@modest
@given(uncertain, shares)
def test_the_regret_is_the_same_for_all_labels(p: Matrix, t: float) -> None:
    of_labels = losses(predictive(p, t), genie(p, t))
    np.testing.assert_allclose(of_labels, regret(p, t), rtol=1e-9, atol=1e-12)


@modest
@given(uncertain, shares, seeds)
def test_any_other_learner_has_a_larger_worst_regret(p: Matrix, t: float, seed: int) -> None:
    rng = np.random.default_rng(seed)
    of_genie, gamma = genie(p, t), float(regret(p, t))
    others = [rng.dirichlet(np.ones(len(p))), p, of_genie.max() - of_genie + 0.1]  # random, the model itself, reversed
    nudged = predictive(p, t) * np.exp(0.01 * rng.normal(size=len(p)))
    for other in (*others, nudged):
        q = np.maximum(other, 1e-300) / np.maximum(other, 1e-300).sum()
        worst = losses(q, of_genie).max()
        assert worst >= gamma - 1e-9
        if np.abs(q - predictive(p, t)).max() > 1e-3:
            assert worst > gamma


@pytest.mark.parametrize("seed", range(5))
def test_of_a_real_learner_whose_genie_is_refitted_for_every_label(seed: int) -> None:
    """The genie is found by adding the row with each label and fitting again, not by the closed form."""
    rng = np.random.default_rng(seed)
    layer = SingleLayer(0.1).fit(rng.normal(size=(20, 3)), rng.integers(4, size=20))
    x = rng.normal(size=3)
    of_genie = layer.refit_genie(x)
    gamma = layer.regret(x[None])[0]
    np.testing.assert_allclose(losses(of_genie / of_genie.sum(), of_genie), gamma, rtol=1e-8)
    for _ in range(100):
        assert losses(rng.dirichlet(np.ones(4)), of_genie).max() > gamma


@pytest.mark.parametrize(("weights", "rows", "low", "high"), [(1, 20, 0.85, 1), (5, 20, 0.4, 0.6), (5, 100, 0.1, 0.4)])
def test_a_longer_row_may_have_the_smaller_regret(weights: float, rows: int, low: float, high: float) -> None:
    """The paper says that the regret of ax is smaller than that of bx for a < b: the less so, the surer the model."""
    rng = np.random.default_rng(0)
    smaller = []
    for _ in range(400):
        train, theta, x = rng.normal(size=(rows, 4)), weights * rng.normal(size=(4, 3)), rng.normal(size=4)
        points = np.sort(rng.uniform(0.1, 3, size=2))[:, None] * x
        h = ((points @ np.linalg.inv(train.T @ train)) * points).sum(axis=1)
        first, second = regret(np.stack([softmax(list(point @ theta)) for point in points]), h / (1 + h))
        smaller.append(first < second)
    assert low < np.mean(smaller) < high
