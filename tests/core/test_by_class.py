"""Thresholds of predicted classes: each as if its class were alone, the pooled one where a class has too few rows."""

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

from pnml.core.calibration import PooledClassesWarning, Threshold, calibrate

Matrix = np.ndarray[Any, Any]

pytestmark = pytest.mark.filterwarnings("ignore::pnml.core.calibration.PooledClassesWarning")

RATE = 0.1  # needs 9 rows


@st.composite
def calibration_sets(draw: st.DrawFn) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Draw scores and classes to calibrate on, and fresh ones; whole numbers, so that there are ties."""
    rng = np.random.default_rng(draw(st.integers(0, 10**6)))
    n, m, spread = draw(st.integers(9, 80)), draw(st.integers(1, 30)), draw(st.sampled_from([3, 1000]))
    weights = rng.dirichlet(np.full(4, 0.7))
    return (
        rng.integers(0, spread, n).astype(float),
        rng.choice(4, n, p=weights),
        rng.integers(-1, spread + 1, m).astype(float),
        rng.integers(0, 4, m),
    )


@settings(deadline=None, max_examples=200)
@given(drawn=calibration_sets())
def test_every_class_is_judged_as_if_it_were_alone_and_small_ones_by_all(drawn: tuple[Matrix, ...]) -> None:
    scores, classes, fresh, fresh_classes = drawn
    threshold = calibrate(scores, predictions=classes, n_classes=4, by="prediction", false_alarm_rate=RATE)
    is_ood, p_value = threshold.is_ood(fresh, fresh_classes), threshold.p_value(fresh, fresh_classes)
    for score, number, flagged, p in zip(fresh, fresh_classes, is_ood, p_value, strict=True):
        mine = scores[classes == number]
        mine = mine if len(mine) >= 9 else scores
        assert p == pytest.approx((1 + sum(held >= score for held in mine)) / (1 + len(mine)), rel=1e-12)
        rank = math.ceil((len(mine) + 1) * (1 - RATE) - 1e-9)
        assert flagged == (score > sorted(mine)[rank - 1])
        assert flagged == (p <= RATE + 1e-12)


@settings(deadline=None, max_examples=50)
@given(drawn=calibration_sets())
def test_table_of_classes_counts_calibration_rows(drawn: tuple[Matrix, ...]) -> None:
    scores, classes, *_ = drawn
    for by in (None, "prediction"):
        threshold = calibrate(scores, predictions=classes, n_classes=4, by=by, false_alarm_rate=RATE)
        assert [one.prediction for one in threshold.classes] == [0, 1, 2, 3]
        for one in threshold.classes:
            mine = scores[classes == one.prediction]
            assert (one.count, one.flagged) == (len(mine), (mine > one.value).sum())
            assert one.is_own == (by == "prediction" and len(mine) >= 9)
            if one.is_own:
                alone = calibrate(mine, false_alarm_rate=RATE)
                assert (one.value, one.interval) == (alone.value, alone.interval)
            else:
                assert one.value == threshold.value
                measured = stats.binomtest(one.flagged, len(mine)).proportion_ci(0.95) if len(mine) else (0, 1)
                np.testing.assert_allclose(one.interval, measured, rtol=1e-7, atol=1e-12)


def three_classes() -> tuple[Threshold, Matrix, Matrix]:
    rng = np.random.default_rng(0)
    classes = np.repeat([0, 1, 2], [100, 60, 5])
    scores = (rng.gamma(2, size=165) * np.array([1, 5, 3])[classes]).astype(np.float32)
    threshold = calibrate(scores, predictions=classes, n_classes=4, by="prediction", false_alarm_rate=RATE)
    fresh_classes = rng.integers(0, 4, 200)
    return threshold, (rng.gamma(2, size=200) * 3).astype(np.float32), fresh_classes


@pytest.mark.parametrize("convert", [torch.tensor, jnp.asarray, array_api_strict.asarray])
def test_arrays_of_any_library_get_answers_of_that_library(convert: Any) -> None:
    threshold, scores, classes = three_classes()
    fresh = convert(scores)
    for predictions in (convert(classes), classes):  # of the same library, or not
        p_value, is_ood = threshold.p_value(fresh, predictions), threshold.is_ood(fresh, predictions)
        assert isinstance(p_value, type(fresh))
        assert p_value.dtype == fresh.dtype
        np.testing.assert_allclose(np.from_dlpack(p_value), threshold.p_value(scores, classes), rtol=1e-6)
        assert np.from_dlpack(is_ood).tolist() == threshold.is_ood(scores, classes).tolist()


@pytest.mark.parametrize("convert", [torch.tensor, array_api_strict.asarray])
def test_library_of_a_gpu_counts_as_numpy_does(convert: Any) -> None:
    """On a GPU the library of the scores computes; here it does so on the host."""
    threshold, scores, classes = three_classes()
    assert threshold.groups is not None
    scores[:2] = math.nan, math.inf
    fresh, numbers = convert(scores), convert(classes)
    p_value, limit = threshold.groups.p_value(fresh, numbers), threshold.groups.threshold(fresh, numbers)
    assert isinstance(p_value, type(fresh))
    np.testing.assert_allclose(np.from_dlpack(p_value), threshold.p_value(scores, classes), rtol=1e-6)
    assert np.from_dlpack(~(fresh <= limit)).tolist() == threshold.is_ood(scores, classes).tolist()


def test_scores_of_any_shape_keep_it() -> None:
    threshold, scores, classes = three_classes()
    grid, numbers = scores.reshape(10, 20), classes.reshape(10, 20)
    np.testing.assert_array_equal(threshold.is_ood(grid, numbers).ravel(), threshold.is_ood(scores, classes))
    np.testing.assert_array_equal(threshold.p_value(grid, numbers).ravel(), threshold.p_value(scores, classes))


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor, jnp.asarray, array_api_strict.asarray])
@pytest.mark.parametrize("by", [None, "prediction"])
def test_score_that_is_no_number_is_flagged_with_the_smallest_p_value(convert: Any, by: Any) -> None:
    classes = np.repeat([0, 1], [60, 39])
    threshold = calibrate(np.arange(99.0), predictions=classes, by=by)
    scores, predictions = convert([math.nan, math.inf, 0.0]), convert([1, 1, 1])
    assert np.from_dlpack(threshold.is_ood(scores, predictions)).tolist() == [True, True, False]
    smallest = 1 / (100 if by is None else 40)
    np.testing.assert_allclose(
        np.from_dlpack(threshold.p_value(scores, predictions)), [smallest, smallest, 1], rtol=1e-6
    )


def test_classes_with_too_few_rows_are_named() -> None:
    scores, classes = np.arange(300.0), np.repeat([0, 1, 3], [271, 11, 18])
    message = r"^4 of 5 predicted classes have fewer than 19 .* 1 \(11\), 2 \(0\), 3 \(18\), 4 \(0\)\. They share"
    with pytest.warns(PooledClassesWarning, match=message):
        threshold = calibrate(scores, predictions=classes, n_classes=5, by="prediction")
    assert [one.is_own for one in threshold.classes] == [True, False, False, False, False]
    assert threshold.classes[2].interval == (0, 1), "nothing is known about a class that was not seen"
    assert "by='prediction'" in repr(threshold)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"by": "label"}, "by must be \"prediction\" or None, got 'label'"),
        ({"by": "prediction"}, "needs the predicted class of every score"),
        ({"predictions": [0, 1]}, r"one prediction for each of 100 scores, got shape \(2,\)"),
        ({"predictions": [-1] * 100, "n_classes": 3}, "predictions from 0 to 2, got -1"),
        ({"predictions": [3] * 100, "n_classes": 3}, "predictions from 0 to 2, got 3"),
        ({"predictions": [0.5] * 100, "n_classes": 3}, "predictions from 0 to 2, got 0.5"),
        ({"predictions": [math.nan] * 100, "n_classes": 3}, "predictions from 0 to 2, got nan"),
    ],
)
def test_bad_predictions_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        calibrate(np.arange(100.0), **options)


def test_decisions_by_class_need_the_class() -> None:
    threshold, scores, classes = three_classes()
    for ask in (threshold.is_ood, threshold.p_value):
        with pytest.raises(
            ValueError, match=r"pass predictions, threshold\.is_ood\(result\.regret, result\.prediction\)"
        ):
            ask(scores)
        with pytest.raises(ValueError, match=r"one prediction for each score, of shape \(200,\), got \(3,\)"):
            ask(scores, classes[:3])
        with pytest.raises(ValueError, match="predictions from 0 to 3, got 4"):
            ask(scores, classes + 1)


def test_rates_of_every_class_keep_the_guarantee_where_one_threshold_does_not() -> None:
    """Regrets of a rare class are twice as large: exact rates, because the scores are uniform."""
    rng = np.random.default_rng(1)
    rates: dict[Any, list[list[float]]] = {None: [], "prediction": []}
    for _ in range(500):
        classes = rng.permutation(np.repeat([0, 1], [361, 39]))
        scores = rng.uniform(size=400) * (1 + classes)
        for by, found in rates.items():
            threshold = calibrate(scores, predictions=classes, by=by)
            found.append([max(0.0, 1 - one.value / (1 + one.prediction)) for one in threshold.classes])
    marginal, conditional = (np.mean(found, axis=0) for found in rates.values())
    assert marginal[1] > 0.4, "nearly all false alarms are of the rare class"
    np.testing.assert_allclose(conditional, [18 / 362, 2 / 40], atol=0.006)  # four standard errors
