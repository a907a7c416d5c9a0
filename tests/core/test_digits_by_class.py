"""Acceptance: false alarms of every class of digits, one of which is rare."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from pnml import Detector
from pnml.core.calibration import Threshold, calibrate
from pnml.core.conformal import flagged_ranks

Vector = np.ndarray[Any, Any]

RATE, RARE, SPLITS = 0.05, 1, 200


def unseen_digits(*, rare_fitted: int, rare_unseen: int | None = None) -> tuple[Vector, Vector]:
    """Give regrets and predictions of digits that a classifier and its detector have not seen.

    They are fitted on 80 samples of each class, and on ``rare_fitted`` of the rare one.
    """
    bunch, rng = load_digits(), np.random.default_rng(0)
    fitted, unseen = [], []
    for number in range(10):
        mine = rng.permutation(np.flatnonzero(bunch.target == number))
        cut = rare_fitted if number == RARE else 80
        fitted.append(mine[:cut])
        unseen.append(mine[cut:] if number != RARE or rare_unseen is None else mine[cut : cut + rare_unseen])
    images, train, fresh = bunch.data / 16, np.concatenate(fitted), np.concatenate(unseen)
    model = LogisticRegression(max_iter=2000).fit(images[train], bunch.target[train])
    result = Detector(model.coef_, model.intercept_).fit(images[train])(images[fresh])
    return result.regret, result.prediction


def splits(regret: Vector, prediction: Vector, by: Any) -> list[tuple[Threshold, Vector, Vector]]:
    """Calibrate on a random half, many times; give the threshold, and decisions and classes of the other half."""
    rng, found = np.random.default_rng(0), []
    for _ in range(SPLITS):
        held, fresh = np.array_split(rng.permutation(len(regret)), 2)
        threshold = calibrate(regret[held], predictions=prediction[held], n_classes=10, by=by, false_alarm_rate=RATE)
        found.append((threshold, threshold.is_ood(regret[fresh], prediction[fresh]), prediction[fresh]))
    return found


@cache
def law(flagged: int, count: int, fresh: int) -> tuple[tuple[float, float], float, float]:
    """Give the interval of the rate, and the fewest and most of ``fresh`` samples that are flagged, each for 95 %."""
    ranks = flagged, count + 1 - flagged
    low, high = stats.betabinom(fresh, *ranks).interval(0.95)
    return stats.beta(*ranks).interval(0.95), low, high


def test_one_threshold_flags_far_more_of_a_rare_class() -> None:
    found = splits(*unseen_digits(rare_fitted=40), by=None)
    overall = np.mean([is_ood.mean() for _, is_ood, _ in found])
    rare = np.mean([is_ood[classes == RARE].mean() for _, is_ood, classes in found])
    assert overall == pytest.approx(RATE, abs=0.01)
    assert rare > 2 * RATE


def test_false_alarms_of_every_class_follow_the_stated_law() -> None:
    """How many of m fresh samples of a class are flagged is beta-binomial: the law of the interval, counted on m."""
    found = splits(*unseen_digits(rare_fitted=40), by="prediction")
    for number in range(10):
        rates, expected, inside = [], [], []
        for threshold, is_ood, classes in found:
            one = threshold.classes[number]
            assert one.is_own
            flagged = flagged_ranks(one.count, RATE)
            interval, low, high = law(flagged, one.count, int((classes == number).sum()))
            np.testing.assert_allclose(one.interval, interval, rtol=1e-7)
            mine = is_ood[classes == number]
            rates.append(mine.mean())
            expected.append(flagged / (one.count + 1))
            inside.append(low <= mine.sum() <= high)
        error = np.std(rates) / np.sqrt(SPLITS)
        assert max(expected) <= RATE + 1e-12
        assert abs(np.mean(rates) - np.mean(expected)) < 4 * error
        assert np.mean(inside) >= 0.92


@pytest.mark.filterwarnings("ignore::pnml.core.calibration.PooledClassesWarning")
def test_rate_of_a_class_with_too_few_samples_lies_in_its_measured_interval() -> None:
    regret, prediction = unseen_digits(rare_fitted=20, rare_unseen=20)
    inside = []
    for threshold, _, _ in splits(regret, prediction, by="prediction"):
        one = threshold.classes[RARE]
        assert not one.is_own
        rate = (regret[prediction == RARE] > threshold.value).mean()
        inside.append(one.interval[0] <= rate <= one.interval[1])
    assert np.mean(inside) >= 0.95
