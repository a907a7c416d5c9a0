"""Choosing what to label: against sorting by hand, scipy's entropy, and a simulation written out anew."""

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
    Situation,
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
def test_acquire_takes_the_largest_and_of_equals_the_first(scores: list[float], data: st.DataObject) -> None:
    k = data.draw(st.integers(1, len(scores)))
    by_hand = sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k]
    assert acquire(scores, k).tolist() == by_hand


def test_acquire_takes_tensors_and_infinite_scores() -> None:
    torch = pytest.importorskip("torch")
    assert acquire(torch.tensor([1.0, torch.inf, 3.0]), 2).tolist() == [1, 2]


@pytest.mark.parametrize("k", [0, -1, 4])
def test_as_many_as_there_are(k: int) -> None:
    with pytest.raises(ValueError, match=f"k is {k}: expected from 1 to 3"):
        acquire([1.0, 2.0, 3.0], k)


def test_nan_has_no_rank() -> None:
    with pytest.raises(ValueError, match=r"scores\[0\] is NaN"):
        acquire([np.nan, 1.0], 1)


def test_entropy_agrees_with_scipy() -> None:
    p = np.random.default_rng(0).dirichlet(np.full(5, 0.3), size=50)
    p[0] = [0, 0, 1, 0, 0]
    np.testing.assert_allclose(entropy(p), scipy_entropy(p, axis=1), atol=1e-12)
    assert str(entropy(p)[0]) == "0.0"


@pytest.mark.parametrize("classes", [2, 3])
def test_regret_of_the_pool_is_the_theorem_on_the_labelled_rows(classes: int) -> None:
    (x, y), (pool, _) = blobs(0, 60, classes), blobs(1, 20, classes)
    model = LogisticRegression().fit(x, y)
    found = by_regret("natural")(Situation(model, x, pool, np.random.default_rng(0)))
    h = np.einsum("ni,ij,nj->n", pool, np.linalg.inv(x.T @ x), pool)
    np.testing.assert_allclose(found, regret(model.predict_proba(pool), h / (1 + h)), rtol=1e-9)


def test_strategies_score_the_pool_by_what_they_are_called() -> None:
    (x, y), (pool, _) = blobs(0), blobs(1, 30)
    model = LogisticRegression().fit(x, y)
    now = Situation(model, x, pool, np.random.default_rng(5))
    p = model.predict_proba(pool)
    np.testing.assert_allclose(by_entropy(now), scipy_entropy(p, axis=1))
    assert np.argmax(by_confidence(now)) == np.argmin(p.max(axis=1))
    np.testing.assert_array_equal(at_random(now), np.random.default_rng(5).random(30))


def test_simulation_labels_what_the_strategy_asks_for() -> None:
    x, y = blobs(0)
    seen: list[Situation] = []

    def first_coordinate(now: Situation) -> Rows:
        seen.append(now)
        return now.pool[:, 0]

    accuracy = simulate(first_coordinate, (x, y), blobs(1), start=6, k=5, rounds=4, seed=3)
    assert accuracy.shape == (5,)
    assert [len(now.labelled) for now in seen] == [6, 11, 16, 21]
    for now, later in pairwise(seen):
        assert len(now.labelled) + len(now.pool) == len(x)
        asked = now.pool[np.argsort(-now.pool[:, 0])[:5]]
        np.testing.assert_array_equal(later.labelled, np.vstack([now.labelled, asked]))


def test_accuracy_is_that_of_a_model_fitted_to_the_labelled_rows() -> None:
    (x, y), (x_test, y_test) = blobs(0), blobs(1)
    last: list[Rows] = []

    def watched(now: Situation) -> Rows:
        last.append(now.labelled)
        return now.rng.random(len(now.pool))

    accuracy = simulate(watched, (x, y), (x_test, y_test), start=10, k=10, rounds=3, seed=0)
    for rows, found in zip(last, accuracy, strict=False):
        labels = [y[np.flatnonzero((x == row).all(axis=1))[0]] for row in rows]
        assert set(labels) == {0, 1, 2}
        model = LogisticRegression(max_iter=1000).fit(rows, labels)
        assert found == pytest.approx(100 * np.mean(model.predict(x_test) == y_test))


def test_strategies_of_one_seed_start_alike_and_seeds_differ() -> None:
    train, test = blobs(0), blobs(1)

    def start(strategy: Strategy, seed: int) -> bytes:
        situations: list[Situation] = []

        def watched(now: Situation) -> Any:
            situations.append(now)
            return strategy(now)

        simulate(watched, train, test, start=9, k=3, rounds=1, seed=seed)
        return situations[0].labelled.tobytes()

    assert start(by_regret(), 0) == start(at_random, 0) != start(at_random, 1)


def test_with_few_rows_the_regret_says_so_and_prefers_the_sure() -> None:
    x, y = load_digits(return_X_y=True)
    known, pool = x[:20] / 16, x[20:220] / 16
    model = LogisticRegression().fit(known, y[:20])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        scores = by_regret()(Situation(model, known, pool, np.random.default_rng(0)))
    assert any(issubclass(warning.category, FewRowsWarning) for warning in caught)
    confidence = model.predict_proba(pool).max(axis=1)
    assert np.corrcoef(scores, confidence)[0, 1] > 0.5  # the module's warning, seen


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"start": 2}, "start is 2: expected from 3, one label of every class, to 120"),
        ({"start": 121}, "start is 121"),
        ({"rounds": 12}, "9 labels and 12 rounds of 10 more need 129 rows, got 120"),
    ],
)
def test_impossible_plans_are_refused(changed: dict[str, int], message: str) -> None:
    plan = {"start": 9, "k": 10, "rounds": 3, "seed": 0} | changed
    with pytest.raises(ValueError, match=message):
        simulate(at_random, blobs(0), blobs(1), **plan)


def test_labels_must_match_their_rows() -> None:
    x, y = blobs(0)
    with pytest.raises(ValueError, match=r"labels of test has shape \(119,\)"):
        simulate(at_random, (x, y), (x, y[1:]), start=9, k=1, rounds=1, seed=0)
