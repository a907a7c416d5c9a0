"""Both sides of every limit: what counts as outside, as out of range, as tied, and as flagged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import entropy

from pnml import Subspace, genie, predictive, regret
from pnml.core.calibration import calibrate
from pnml.core.scaling import balanced_length
from pnml.core.subspace import leverage
from pnml.core.theorem import noisy_log_softmax, regrets_of_logits

EPS = float(np.finfo(np.float64).eps)


@pytest.mark.parametrize(("of_length", "of_leverage"), [(0.04, 0.0), (0.0, 0.01), (0.02, 0.005)])
def test_a_row_is_outside_beyond_the_sum_of_both_limits(of_length: float, of_leverage: float) -> None:
    whitening, null_space = np.array([[4.0], [0.0]]), np.array([[0.0], [1.0]])
    inside, beyond = 3.0, np.linspace(0.05, 2, 400)
    x = np.column_stack([np.full_like(beyond, inside), beyond])
    h = (4 * inside) ** 2
    limit = of_length * (inside**2 + beyond**2) + of_leverage * h
    found = leverage(x, whitening, null_space, (of_length, of_leverage))
    expected = np.where(beyond**2 > limit, math.inf, h)
    assert {*expected} == {h, math.inf}
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("weakest", [1e-11, 1e-12])
def test_what_may_leak_from_the_weakest_direction_is_inside(weakest: float) -> None:
    """The eigenvector of the weakest direction is known to ε √M λ_max / λ_min: a row along it may be tilted so far."""
    width = 40
    eigenvalues = np.r_[1.0, weakest, np.zeros(width - 2)]
    subspace = Subspace(eigenvalues, np.eye(width), count=2)
    assert subspace.rank == 2
    known = EPS * math.sqrt(width) / weakest
    tilts = known * np.array([0.5, 0.95, 1.05, 2.0])
    rows = np.zeros((4, width))
    rows[:, 1], rows[:, 7] = 1, tilts
    np.testing.assert_array_equal(np.isinf(subspace.leverage(rows)), [False, False, True, True])
    rows[:, 0], rows[:, 1] = 1, 0  # the strongest direction is known far better
    assert np.isinf(subspace.leverage(rows)).all()


@pytest.mark.parametrize(("dtype", "eps"), [(np.float64, 0.0), (np.float32, 2.0**-23), (np.float16, 2.0**-10)])
def test_a_row_is_outside_by_the_share_that_rounding_cannot_explain(dtype: Any, eps: float) -> None:
    count, width = 50, 64
    subspace = Subspace(np.r_[np.ones(3), np.zeros(width - 3)], np.eye(width), count)
    share = max(math.sqrt(count * width * EPS), 4 * eps)
    rows = np.zeros((2, width), dtype=dtype)
    rows[:, 0], rows[:, 9] = 1, np.array([0.9, 1.2]) * share
    np.testing.assert_array_equal(np.isinf(subspace.leverage(rows)), [False, True])


def test_no_count_of_rows_makes_everything_inside() -> None:
    subspace = Subspace(np.array([1.0, 0.0]), np.eye(2), count=10**17)
    rows = np.array([[math.sqrt(1 - share**2), share] for share in (0.49, 0.51)])
    np.testing.assert_array_equal(np.isinf(subspace.leverage(rows)), [False, True])


@pytest.mark.parametrize("width", [3, 32, 50])
def test_an_eigenvalue_counts_from_the_rounding_of_the_largest(width: int) -> None:
    limit = max(width, 32) * EPS
    for share, rank in ((0.9, 1), (1.1, 2)):
        eigenvalues = 7 * np.r_[1.0, share * limit, np.zeros(width - 2)]
        assert Subspace(eigenvalues, np.eye(width), 10).rank == rank


@pytest.mark.parametrize("function", [genie, predictive, regret])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_probabilities_may_exceed_one_by_four_roundings_and_no_more(function: Any, dtype: Any) -> None:
    eps = np.finfo(dtype).eps
    for log, largest in ((False, dtype(1)), (True, dtype(0))):
        lowest = -np.inf if log else 0
        function(np.array([largest + 4 * eps, lowest], dtype=dtype), 0.5, log=log)
        with pytest.raises(ValueError, match=r"probabilities must"):
            function(np.array([largest + 5 * eps, lowest], dtype=dtype), 0.5, log=log)


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor])
def test_a_score_that_is_no_number_is_flagged_and_one_at_the_threshold_is_not(convert: Any) -> None:
    threshold = calibrate(np.arange(99.0))
    scores = convert([math.nan, math.inf, threshold.value, np.nextafter(threshold.value, math.inf), -math.inf])
    assert threshold.is_ood(scores).tolist() == [True, True, False, True, False]
    np.testing.assert_allclose(threshold.p_value(scores).tolist(), [0.01, 0.01, 0.06, 0.05, 1.0])


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor])
def test_a_score_that_is_no_number_is_flagged_in_every_class(convert: Any) -> None:
    classes = np.arange(99) // 50
    threshold = calibrate(np.arange(99.0), predictions=classes, by="prediction")
    limits = [one.value for one in threshold.classes]
    scores, predictions = convert([math.nan, math.nan, *limits]), convert([0, 1, 0, 1])
    assert threshold.is_ood(scores, predictions).tolist() == [True, True, False, False]
    np.testing.assert_allclose(threshold.p_value(scores, predictions).tolist()[:2], [1 / 51, 1 / 50])


def mean_entropy(rows: np.ndarray[Any, Any], weight: np.ndarray[Any, Any], length: float) -> float:
    directions = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return float(entropy(softmax(length * directions @ weight.T, axis=1), axis=1).mean())


@pytest.mark.parametrize(("apart", "left_at_last"), [(0.0, 0.5), (1e-11, 0.5), (1e-6, 0.0)])
def test_differences_of_rounding_between_classes_leave_them_tied(apart: float, left_at_last: float) -> None:
    """Rows of two pairs of classes: within a pair they differ by ``apart`` of what the pairs differ by.

    Classes that are tied keep log 2, which is half of the entropy, at any length; others keep nothing.
    """
    rows = np.array([[3.0, 0.0], [0.0, 2.0]])
    weight = np.array([[1.0, 0.0], [1.0 - apart, 0.0], [0.0, 1.0], [0.0, 1.0 - apart]])
    length = balanced_length(rows, weight, np.zeros(4), mean_norm=2.5)
    target = (left_at_last + (1 - left_at_last) / 4) * math.log(4)
    assert mean_entropy(rows, weight, length) == pytest.approx(target, rel=1e-6)


@pytest.mark.parametrize("t", [0.0, 1e-9, 0.3, 1.0])
def test_the_regret_of_probabilities_at_hand_is_that_of_the_definition(t: float) -> None:
    logits = np.random.default_rng(0).normal(scale=5, size=(40, 7))
    p = np.exp(noisy_log_softmax(logits, 0.01))
    genies = p / (p + p**t * (1 - p))
    found = regrets_of_logits(logits, np.full(40, t), 0.01)
    np.testing.assert_allclose(found, np.log(genies.sum(axis=1)), rtol=1e-12, atol=1e-14)
