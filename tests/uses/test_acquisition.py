"""Compare acquisition with sorting in Python, with SciPy's entropy and with refitted models."""

from __future__ import annotations

import warnings
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import entropy as scipy_entropy
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from pnml import regret
from pnml.core.detector import FewRowsWarning
from pnml.uses.acquisition import (
    AcquisitionState,
    Strategy,
    acquire,
    at_random,
    by_confidence,
    by_entropy,
    by_regret,
    entropy,
    simulate,
)

Rows = np.ndarray[Any, Any]


def blobs(seed: int, n: int = 120, classes: int = 3) -> tuple[Rows, Rows]:
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.normal(size=(n, 4)) + 2 * np.eye(max(4, classes))[y, :4], y


@given(st.lists(st.integers(0, 5).map(float), min_size=1, max_size=30), st.data())
def test_acquire_returns_the_largest_with_ties_in_order(scores: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(scores)))
    expected = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]
    assert acquire(scores, k).tolist() == expected


def test_acquire_accepts_tensors_and_infinite_scores() -> None:
    torch = pytest.importorskip("torch")
    assert acquire(torch.tensor([1.0, torch.inf, 3.0]), 2).tolist() == [1, 2]


@pytest.mark.parametrize("k", [0, -1, 4])
def test_acquire_raises_for_k_out_of_range(k: int) -> None:
    with pytest.raises(ValueError, match=f"k is {k}: expected from 1 to 3"):
        acquire([1.0, 2.0, 3.0], k)


def test_acquire_raises_for_nan() -> None:
    with pytest.raises(ValueError, match=r"scores\[0\] is NaN"):
        acquire([np.nan, 1.0], 1)


def test_entropy_agrees_with_scipy() -> None:
    p = np.random.default_rng(0).dirichlet(np.full(5, 0.3), size=50)
    p[0] = [0, 0, 1, 0, 0]
    np.testing.assert_allclose(entropy(p), scipy_entropy(p, axis=1), atol=1e-12)
    assert str(entropy(p)[0]) == "0.0"


@pytest.mark.parametrize("p", [[0.9, 0.9], [1.5, -0.5], [0.1, 0.1]])
def test_entropy_raises_for_what_is_no_distribution(p: list[float]) -> None:
    with pytest.raises(ValueError, match=r"row 1 has the sum .*: expected non-negative probabilities with a sum of 1"):
        entropy([[0.5, 0.5], p])


@pytest.mark.parametrize("classes", [2, 3])
def test_by_regret_equals_the_regret_from_the_labelled_rows(classes: int) -> None:
    (x, y), (pool, _) = blobs(0, 60, classes), blobs(1, 20, classes)
    model = LogisticRegression().fit(x, y)
    found = by_regret("natural")(AcquisitionState(model, x, pool, np.random.default_rng(0)))
    h = np.einsum("ni,ij,nj->n", pool, np.linalg.inv(x.T @ x), pool)
    np.testing.assert_allclose(found, regret(model.predict_proba(pool), h / (1 + h)), rtol=1e-9)


def test_strategies_return_the_score_in_their_name() -> None:
    (x, y), (pool, _) = blobs(0), blobs(1, 30)
    model = LogisticRegression().fit(x, y)
    state = AcquisitionState(model, x, pool, np.random.default_rng(5))
    p = model.predict_proba(pool)
    np.testing.assert_allclose(by_entropy(state), scipy_entropy(p, axis=1))
    assert np.argmax(by_confidence(state)) == np.argmin(p.max(axis=1))
    np.testing.assert_array_equal(at_random(state), np.random.default_rng(5).random(30))


def test_simulate_labels_the_rows_of_largest_score() -> None:
    x, y = blobs(0)
    states: list[AcquisitionState] = []

    def first_coordinate(state: AcquisitionState) -> Rows:
        states.append(state)
        return state.pool[:, 0]

    accuracy = simulate(first_coordinate, (x, y), blobs(1), start=6, k=5, rounds=4, seed=3)
    assert accuracy.shape == (5,)
    assert [len(state.labelled) for state in states] == [6, 11, 16, 21]
    for state, later in pairwise(states):
        assert len(state.labelled) + len(state.pool) == len(x)
        chosen = state.pool[np.argsort(-state.pool[:, 0])[:5]]
        np.testing.assert_array_equal(later.labelled, np.vstack([state.labelled, chosen]))


def test_simulate_returns_accuracy_of_models_fitted_to_the_labelled_rows() -> None:
    (x, y), (x_test, y_test) = blobs(0), blobs(1)
    labelled: list[Rows] = []

    def recording(state: AcquisitionState) -> Rows:
        labelled.append(state.labelled)
        return state.rng.random(len(state.pool))

    accuracy = simulate(recording, (x, y), (x_test, y_test), start=10, k=10, rounds=3, seed=0)
    for rows, found in zip(labelled, accuracy, strict=False):
        labels = [y[np.flatnonzero((x == row).all(axis=1))[0]] for row in rows]
        assert set(labels) == {0, 1, 2}
        model = LogisticRegression(max_iter=1000).fit(rows, labels)
        assert found == pytest.approx(100 * np.mean(model.predict(x_test) == y_test))


def test_simulate_starts_from_rows_that_depend_on_the_seed_only() -> None:
    train, test = blobs(0), blobs(1)

    def start(strategy: Strategy, seed: int) -> bytes:
        states: list[AcquisitionState] = []

        def recording(state: AcquisitionState) -> Any:
            states.append(state)
            return strategy(state)

        simulate(recording, train, test, start=9, k=3, rounds=1, seed=seed)
        return states[0].labelled.tobytes()

    assert start(by_regret(), 0) == start(at_random, 0) != start(at_random, 1)


def test_by_regret_natural_with_few_rows_warns_and_prefers_confident_samples() -> None:
    x, y = load_digits(return_X_y=True)
    known, pool = x[:20] / 16, x[20:220] / 16
    model = LogisticRegression().fit(known, y[:20])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores = by_regret("natural")(AcquisitionState(model, known, pool, np.random.default_rng(0)))
    assert any(issubclass(warning.category, FewRowsWarning) for warning in caught)
    confidence = model.predict_proba(pool).max(axis=1)
    assert np.corrcoef(scores, confidence)[0, 1] > 0.5  # as the module's docstring warns


def test_by_regret_with_few_rows_prefers_doubtful_samples() -> None:
    x, y = load_digits(return_X_y=True)
    known, pool = x[:20] / 16, x[20:220] / 16
    model = LogisticRegression().fit(known, y[:20])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scores = by_regret()(AcquisitionState(model, known, pool, np.random.default_rng(0)))
    assert np.corrcoef(scores, model.predict_proba(pool).max(axis=1))[0, 1] < -0.5


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"start": 2}, r"start is 2: expected from 3 \(one label per class\) to 120"),
        ({"start": 121}, "start is 121"),
        ({"rounds": 12}, r"start \+ k \* rounds = 129 training rows, got 120"),
    ],
)
def test_simulate_raises_for_impossible_counts(changed: dict[str, int], message: str) -> None:
    plan = {"start": 9, "k": 10, "rounds": 3, "seed": 0} | changed
    with pytest.raises(ValueError, match=message):
        simulate(at_random, blobs(0), blobs(1), **plan)


def test_simulate_raises_for_labels_of_wrong_shape() -> None:
    x, y = blobs(0)
    with pytest.raises(ValueError, match=r"labels of test has shape \(119,\)"):
        simulate(at_random, (x, y), (x, y[1:]), start=9, k=1, rounds=1, seed=0)
