"""The learner of section 3: its closed form, its recursion and its refit are one and the same."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnml import SingleLayer

from .strategies import matrices, modest, rows_and_queries, seeds, training_rows

if TYPE_CHECKING:
    from .strategies import Matrix

ROWS = [[1.0, 0.0, 2.0], [0.0, 1.0, 0.0], [1.0, 0.2, -1.0], [0.3, 0.3, 0.3], [2.0, -1.0, 0.5]]
LABELS = [0, 1, 0, 2, 1]
N_CLASSES = 3


def labels_for(rows: Matrix, seed: int) -> Matrix:
    """Labels of all three classes; the first row has the last one, so that the classes are known at once."""
    labels = np.random.default_rng(seed).integers(0, N_CLASSES, size=len(rows))
    labels[0] = N_CLASSES - 1
    return labels


def softmax(logits: Matrix) -> Matrix:
    powers = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=-1, keepdims=True))


def least_squares(rows: Matrix, targets: Matrix) -> Matrix:
    return np.linalg.lstsq(rows, targets, rcond=1e-9)[0]


def smoothed_targets(labels: Matrix, smoothing: float = 0.01) -> Matrix:
    one_hot = np.eye(N_CLASSES)[labels]
    return np.asarray(np.log(one_hot * (1 - smoothing) + (1 - one_hot) * smoothing / (N_CLASSES - 1)))


def naive_genie(rows: Matrix, labels: Matrix, x: Matrix) -> list[float]:
    """Lemma 1 before it is simplified: fit, add x with certainty of one label, fit that label's weights again."""
    targets = smoothed_targets(labels)
    powers = np.exp(x @ least_squares(rows, targets))
    result = []
    for label in range(N_CLASSES):
        target = np.append(targets[:, label], np.log(powers.sum()))
        refitted = np.exp(x @ least_squares(np.vstack([rows, x]), target))
        result.append(refitted / (refitted + powers.sum() - powers[label]))
    return result


@modest
@given(rows_and_queries(condition=10.0), seeds)
def test_closed_form_equals_refitting_in_both_branches(case: tuple[Matrix, Matrix], seed: int) -> None:
    rows, queries = case
    labels = labels_for(rows, seed)
    layer = SingleLayer().fit(rows, labels)
    closed, regrets = layer.genie(queries), layer.regret(queries)
    for x, genies, regret in zip(queries, closed, regrets, strict=True):
        np.testing.assert_allclose(layer.refit_genie(x), genies, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(naive_genie(rows, labels, x), genies, rtol=1e-9, atol=1e-9)
        assert regret == pytest.approx(np.log(layer.refit_genie(x).sum()), abs=1e-9)


@pytest.mark.parametrize(("n_rows", "outside"), [(20, False), (2, True)])
def test_both_branches_are_taken(n_rows: int, *, outside: bool) -> None:
    rng = np.random.default_rng(0)
    rows, x = rng.normal(size=(n_rows, 4)), rng.normal(size=4)
    labels = labels_for(rows, 0)
    layer = SingleLayer().fit(rows, labels)
    assert (layer.subspace.xtg(x[None])[0] == 1) == outside
    np.testing.assert_allclose(layer.genie(x[None])[0], naive_genie(rows, labels, x), rtol=1e-9)
    if outside:
        np.testing.assert_allclose(layer.genie(x[None]), 1 / (2 - layer.predict_proba(x[None])), rtol=1e-12)


@modest
@given(training_rows(condition=10.0), seeds)
def test_weights_are_least_squares_of_the_smoothed_targets(rows: Matrix, seed: int) -> None:
    labels = labels_for(rows, seed)
    layer = SingleLayer(smoothing=0.1).fit(rows, labels)
    expected = least_squares(rows, smoothed_targets(labels, 0.1))
    np.testing.assert_allclose(layer.theta, expected, rtol=1e-9, atol=1e-10 * np.abs(expected).max())
    np.testing.assert_allclose(layer.predict_proba(rows), softmax(rows @ expected), rtol=1e-9)


def test_weights_of_dependent_rows_stay_small() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        rows = rng.normal(size=(150, 3)) @ rng.normal(size=(3, 60))
        labels = labels_for(rows, 0)
        expected = least_squares(rows, smoothed_targets(labels))
        np.testing.assert_allclose(SingleLayer().fit(rows, labels).theta, expected, atol=1e-9)


@modest
@given(rows_and_queries(condition=10.0), seeds, st.integers(-5, 0), st.integers(0, N_CLASSES - 1))
def test_updating_equals_fitting_again(case: tuple[Matrix, Matrix], seed: int, which: int, label: int) -> None:
    rows, queries = case
    x, labels = queries[which], labels_for(rows, seed)
    updated = SingleLayer().fit(rows, labels).update(x, label)
    again = SingleLayer().fit(np.vstack([rows, x]), np.append(labels, label))
    np.testing.assert_allclose(updated.theta, again.theta, rtol=1e-9, atol=1e-9 * np.abs(again.theta).max())
    np.testing.assert_allclose(updated.predict_proba(queries), again.predict_proba(queries), rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(updated.regret(queries), again.regret(queries), rtol=1e-7, atol=1e-9)


@modest
@given(st.integers(2, 5).flatmap(lambda width: matrices(3 * width, width)), seeds)
def test_recursion_from_one_row_equals_fitting_all(rows: Matrix, seed: int) -> None:
    labels = labels_for(rows, seed)
    layer = SingleLayer().fit(rows[:1], labels[:1])
    worst = 0.0
    for n in range(1, len(rows)):
        layer.update(rows[n], int(labels[n]))
        values = np.linalg.svd(rows[: n + 1], compute_uv=False)
        worst = max(worst, float((values[0] / values[-1]) ** 2))
        expected = least_squares(rows[: n + 1], smoothed_targets(labels[: n + 1]))
        # Near as many rows as features the fit itself is ill-conditioned: 1e-9 up to a condition of 1e4.
        atol = 1e-9 * max(1.0, worst / 1e4) * np.abs(expected).max()
        np.testing.assert_allclose(layer.theta, expected, rtol=0, atol=atol)
    assert layer.subspace.count == len(rows)


def test_an_update_that_says_what_is_known_changes_nothing() -> None:
    layer = SingleLayer().fit([[1.0, 0.0], [0.0, 1.0]], [0, 1])
    before = layer.theta
    np.testing.assert_allclose(layer.update([1.0, 0.0], 0).theta, before, atol=1e-14)


@pytest.mark.parametrize("smoothing", [1e-6, 0.01, 0.5])
def test_targets_are_the_inverse_of_the_softmax(smoothing: float) -> None:
    layer = SingleLayer(smoothing).fit(ROWS, LABELS)
    for label in range(N_CLASSES):
        expected = np.full(N_CLASSES, smoothing / (N_CLASSES - 1))
        expected[label] = 1 - smoothing
        np.testing.assert_allclose(softmax(layer.inverse_softmax(label)), expected, rtol=1e-12)


@modest
@given(rows_and_queries(), seeds)
def test_predictions_are_probabilities(case: tuple[Matrix, Matrix], seed: int) -> None:
    rows, queries = case
    layer = SingleLayer().fit(rows, labels_for(rows, seed))
    p, log_p = layer.predict_proba(queries), layer.predict_log_proba(queries)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(np.exp(log_p), p)
    assert (log_p <= 0).all()
    assert (layer.regret(queries) >= 0).all()
    assert (layer.regret(queries) <= np.log(N_CLASSES)).all()


def test_integers_and_lists_are_rows_too() -> None:
    layer = SingleLayer().fit([[1, 0], [0, 1]], [0, 1])
    np.testing.assert_allclose(layer.regret([[1, 0]]), layer.regret([[1.0, 0.0]]), rtol=1e-14)
    assert layer.n_classes == 2


@pytest.mark.parametrize("smoothing", [0.0, 1.0, -0.5, 2.0, float("nan")])
def test_smoothing_out_of_range(smoothing: float) -> None:
    with pytest.raises(ValueError, match=f"smoothing must lie between 0 and 1, got {smoothing}"):
        SingleLayer(smoothing)


@pytest.mark.parametrize("labels", [[0, 1], [0.0, 1.0, 2.0], [0, 1, -1], [[0], [1], [2]], ["a", "b", "c"]])
def test_labels_that_do_not_fit(labels: Any) -> None:
    with pytest.raises(ValueError, match="expected 3 integer labels from 0"):
        SingleLayer().fit(np.eye(3), labels)


def test_no_rows_cannot_be_fitted() -> None:
    with pytest.raises(ValueError, match=r"at least one|no rows|empty"):
        SingleLayer().fit(np.zeros((0, 2)), np.zeros(0, dtype=int))


def test_rows_that_do_not_fit() -> None:
    with pytest.raises(ValueError, match="row 1 holds nan in column 0"):
        SingleLayer().fit([[1.0, 2.0], [float("nan"), 0.0]], [0, 1])
    layer = SingleLayer().fit(ROWS, LABELS)
    for ask in (layer.predict_proba, layer.predict_log_proba, layer.regret, layer.genie):
        with pytest.raises(ValueError, match="expected rows of 3 features, got 2"):
            ask([[1.0, 2.0]])
    with pytest.raises(ValueError, match="expected rows of 3 features, got 2"):
        layer.refit_genie([1.0, 2.0])


def test_a_refused_update_changes_nothing() -> None:
    layer = SingleLayer().fit(ROWS, LABELS)
    theta = layer.theta.copy()
    with pytest.raises(ValueError, match="label 3 is none of the classes 0 to 2"):
        layer.update([1.0, 0.0, 0.0], 3)
    with pytest.raises(ValueError, match="label -1 is none"):
        layer.update([1.0, 0.0, 0.0], -1)
    with pytest.raises(ValueError, match="inf in column 2"):
        layer.update([1.0, 0.0, float("inf")], 1)
    np.testing.assert_array_equal(layer.theta, theta)
    assert layer.subspace.count == 5
