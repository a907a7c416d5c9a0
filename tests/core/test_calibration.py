from __future__ import annotations

import math
from typing import Any

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from sklearn.linear_model import LogisticRegression

from pnml import Detector
from pnml.core.beta import beta_cdf, beta_quantile
from pnml.core.calibration import calibrate

Matrix = np.ndarray[Any, Any]

shapes = st.integers(1, 5000)
rates = st.floats(0.02, 0.6)
scores_with_ties = st.lists(st.integers(-5, 5), min_size=60, max_size=90).map(lambda s: np.array(s, dtype=float))


@settings(deadline=None)
@given(x=st.floats(0, 1), a=shapes, b=shapes)
def test_beta_cdf_is_scipys(x: float, a: int, b: int) -> None:
    np.testing.assert_allclose(beta_cdf(x, a, b), stats.beta.cdf(x, a, b), rtol=1e-8, atol=1e-12)


@settings(deadline=None)
@given(probability=st.floats(0.001, 0.999), a=shapes, b=shapes)
def test_beta_quantile_is_scipys(probability: float, a: int, b: int) -> None:
    np.testing.assert_allclose(beta_quantile(probability, a, b), stats.beta.ppf(probability, a, b), rtol=1e-8)


@pytest.mark.parametrize(("count", "rate"), [(50, 0.05), (99, 0.05), (9, 0.1)])
def test_realised_false_alarm_rate_keeps_the_guarantee(count: int, rate: float) -> None:
    repeats = 1000
    uniform = np.random.default_rng(0).uniform(size=(repeats, count))
    thresholds = [calibrate(row, false_alarm_rate=rate) for row in uniform]
    realised = np.array([1 - threshold.value for threshold in thresholds])  # exact: the scores are uniform on [0, 1]

    flagged = math.floor((count + 1) * rate + 1e-9)
    law = stats.beta(flagged, count + 1 - flagged)
    assert law.mean() <= rate + 1e-12
    assert abs(realised.mean() - law.mean()) < 4 * law.std() / math.sqrt(repeats)
    assert stats.kstest(realised, law.cdf).pvalue > 1e-3

    inside = np.mean([t.interval[0] <= r <= t.interval[1] for t, r in zip(thresholds, realised, strict=True)])
    assert abs(inside - 0.95) < 4 * math.sqrt(0.95 * 0.05 / repeats)


def test_interval_is_the_central_one_of_the_confidence_asked_for() -> None:
    threshold = calibrate(np.arange(499.0), false_alarm_rate=0.05, confidence=0.8)
    np.testing.assert_allclose(threshold.interval, stats.beta(25, 475).interval(0.8), rtol=1e-9)
    assert threshold.confidence == 0.8


def test_ties_only_lower_the_rate() -> None:
    rng = np.random.default_rng(1)
    fresh = rng.integers(0, 6, size=100_000)
    realised = [
        calibrate(rng.integers(0, 6, size=100).astype(float), false_alarm_rate=0.2).is_ood(fresh).mean()
        for _ in range(300)
    ]
    assert np.mean(realised) <= 0.2
    assert not calibrate(np.ones(100)).is_ood(np.ones(3)).any()


@settings(deadline=None)
@given(scores=scores_with_ties, rate=rates)
def test_threshold_is_the_smallest_one_that_flags_few_enough(scores: Matrix, rate: float) -> None:
    threshold = calibrate(scores, false_alarm_rate=rate)
    allowed = (
        math.floor((len(scores) + 1) * rate * (1 + 1e-12)) - 1
    )  # a fresh sample takes one of the places above the threshold
    assert (scores > threshold.value).sum() <= allowed
    smaller = scores[scores < threshold.value]
    assert len(smaller) == 0 or (scores > smaller.max()).sum() > allowed


@settings(deadline=None, max_examples=50)
@given(scores=scores_with_ties, fresh=scores_with_ties, rate=rates)
def test_p_value_is_a_count_and_agrees_with_the_threshold(scores: Matrix, fresh: Matrix, rate: float) -> None:
    threshold = calibrate(scores, false_alarm_rate=rate)
    naive = np.array([(1 + sum(held >= score for held in scores)) / (1 + len(scores)) for score in fresh])
    np.testing.assert_allclose(threshold.p_value(fresh), naive, rtol=1e-15)
    assert (threshold.is_ood(fresh) == (naive <= rate * (1 + 1e-12))).all()


def test_p_values_of_fresh_scores_are_uniform() -> None:
    rng = np.random.default_rng(2)
    ranks = [20 * calibrate(rng.normal(size=19)).p_value(rng.normal(size=1))[0] for _ in range(1000)]
    counts = np.bincount(np.rint(ranks).astype(int), minlength=21)[1:]
    assert stats.chisquare(counts).pvalue > 1e-3


@pytest.mark.parametrize("convert", [torch.tensor, jnp.asarray, array_api_strict.asarray])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_of_any_library_get_answers_of_that_library(convert: Any, dtype: Any) -> None:
    rng = np.random.default_rng(3)
    held, fresh = rng.gamma(2, size=200).astype(np.float32), rng.gamma(3, size=50).astype(np.float32)
    expected = calibrate(held.astype(np.float64), false_alarm_rate=0.1)
    scores = convert(fresh if convert is jnp.asarray else fresh.astype(dtype))
    threshold = calibrate(convert(held), false_alarm_rate=0.1)
    assert threshold == expected
    p_value, is_ood = threshold.p_value(scores), threshold.is_ood(scores)
    assert isinstance(p_value, type(scores))
    assert p_value.dtype == scores.dtype
    assert isinstance(is_ood, type(scores))
    fresh = fresh.astype(np.float64)
    np.testing.assert_allclose(np.from_dlpack(p_value), expected.p_value(fresh), rtol=1e-6)
    assert np.from_dlpack(is_ood).tolist() == expected.is_ood(fresh).tolist()


def test_threshold_says_how_it_was_set() -> None:
    threshold = calibrate(np.arange(40.0)[::-1], source="elsewhere")
    assert (threshold.count, threshold.source, threshold.false_alarm_rate) == (40, "elsewhere", 0.05)
    assert "scores" not in repr(threshold)
    assert threshold.scores.tolist() == sorted(threshold.scores)


@pytest.mark.parametrize(("rate", "needed"), [(0.05, 19), (0.01, 99), (0.1, 9), (1 / 3, 2)])
def test_too_few_samples_are_refused_and_enough_are_not(rate: float, needed: int) -> None:
    with pytest.raises(ValueError, match=rf"{needed - 1} calibration samples .* at least {needed} samples"):
        calibrate(np.arange(float(needed - 1)), false_alarm_rate=rate)
    assert calibrate(np.arange(float(needed)), false_alarm_rate=rate).value == needed - 1


@pytest.mark.parametrize("rate", [0, 1, -0.1, 1.5, math.nan])
def test_impossible_rates_are_refused(rate: float) -> None:
    with pytest.raises(ValueError, match=f"false_alarm_rate must lie between 0 and 1, got {rate}"):
        calibrate(np.arange(100.0), false_alarm_rate=rate)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_scores_that_are_not_finite_are_named(bad: float) -> None:
    scores = np.arange(100.0)
    scores[17] = bad
    with pytest.raises(ValueError, match=f"score 17 is {bad}"):
        calibrate(scores)


def realised_rates(how: str, *, trained_head: bool, repeats: int = 40) -> Matrix:
    """Calibrate at 10% on few rows for their width, and measure the rate on 2,000 fresh ones, once per repeat."""
    rng = np.random.default_rng(4)
    rates = []
    for _ in range(repeats):
        centres = rng.normal(size=(3, 20))
        labels = rng.integers(0, 3, size=2300)
        rows = rng.normal(size=(2300, 20)) + centres[labels]
        train, held, fresh = rows[:150], rows[150:300], rows[300:]
        weight = rng.normal(size=(3, 20))
        if trained_head:
            weight = LogisticRegression(C=100.0, max_iter=1000).fit(train, labels[:150]).coef_
        detector = Detector(weight, embedding_scale="natural").fit(train)
        if how == "held-out":
            detector.calibrate(held, false_alarm_rate=0.1)
        else:
            detector.set_threshold(detector.score(train, leave_one_out=how == "leave-one-out"), false_alarm_rate=0.1)
        rates.append(detector.is_ood(fresh).mean())
    return np.array(rates)


def test_leave_one_out_calibration_removes_the_bias_of_having_fitted_the_rows() -> None:
    held_out = realised_rates("held-out", trained_head=False).mean()
    leave_one_out = realised_rates("leave-one-out", trained_head=False).mean()
    as_if_fresh = realised_rates("training rows taken for fresh ones", trained_head=False).mean()
    assert abs(held_out - 0.1) < 0.015
    assert abs(leave_one_out - 0.1) < 0.015
    assert as_if_fresh > 0.13


def test_leave_one_out_calibration_does_not_undo_the_training_of_the_network() -> None:
    held_out = realised_rates("held-out", trained_head=True)
    leave_one_out = realised_rates("leave-one-out", trained_head=True)
    assert abs(held_out.mean() - 0.1) < 0.015
    assert leave_one_out.mean() > 0.13
