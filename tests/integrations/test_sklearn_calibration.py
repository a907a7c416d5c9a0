"""Thresholds with a guarantee on the estimators themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pnml import PNMLClassifier, PNMLOutlierDetector

if TYPE_CHECKING:
    from .rows import Matrix


def rows(count: int, seed: int) -> tuple[Matrix, Matrix]:
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, size=count)
    return rng.normal(size=(count, 5)) + 2 * np.eye(3, 5)[y], y


PIPELINE = make_pipeline(StandardScaler(), LogisticRegression())


@pytest.mark.parametrize("estimator", [PNMLClassifier(), PNMLClassifier(PIPELINE), PNMLOutlierDetector(PIPELINE)])
def test_calibrated_estimators_flag_the_share_asked_for(estimator: Any) -> None:
    estimator.fit(*rows(500, 0))
    threshold = estimator.calibrate(rows(1999, 1)[0], false_alarm_rate=0.05)
    fresh = rows(4000, 2)[0]
    low, high = threshold.interval
    flagged = estimator.is_ood(fresh)
    assert low - 0.01 < flagged.mean() < high + 0.01  # the interval, and what 4,000 rows may differ by
    assert ((estimator.p_value(fresh) <= 0.05) == flagged).all()
    assert estimator.is_ood(np.full((1, 5), 30.0) * [1, -1, 1, -1, 1]).all()


def test_the_threshold_is_the_rank_that_conformal_prediction_says() -> None:
    classifier = PNMLClassifier().fit(*rows(500, 0))
    held = rows(99, 1)[0]
    threshold = classifier.calibrate(held, false_alarm_rate=0.1)
    assert threshold.value == np.sort(classifier.regret(held))[89]
    assert classifier.detector_.threshold is threshold


def test_calibration_moves_the_offset_of_the_outlier_detector() -> None:
    detector = PNMLOutlierDetector(contamination=0.3).fit(rows(500, 0)[0])
    threshold = detector.calibrate(rows(999, 1)[0], false_alarm_rate=0.02)
    fresh = rows(1000, 2)[0]
    assert detector.offset_ == -threshold.value
    assert ((detector.predict(fresh) == -1) == detector.is_ood(fresh)).all()


def test_fitting_again_forgets_the_threshold() -> None:
    classifier = PNMLClassifier().fit(*rows(100, 0))
    with pytest.raises(ValueError, match=r"no threshold is set: call calibrate\(X_held_out"):
        classifier.is_ood(np.zeros((1, 5)))
    classifier.calibrate(rows(100, 1)[0])
    classifier.fit(*rows(100, 0))
    with pytest.raises(ValueError, match="no threshold is set"):
        classifier.p_value(np.zeros((1, 5)))


@pytest.mark.parametrize("method", ["calibrate", "is_ood", "p_value"])
def test_calibration_before_fit_raises(method: str) -> None:
    with pytest.raises(NotFittedError):
        getattr(PNMLClassifier(), method)(np.zeros((1, 5)))
