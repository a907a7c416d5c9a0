"""Thresholds with a guarantee on the estimators themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from pnml import PNMLClassifier, PNMLOutlierDetector
from pnml.core.calibration_scores import TrainingRowsWarning

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


def test_every_predicted_class_may_have_a_threshold_of_its_own() -> None:
    classifier = PNMLClassifier(PIPELINE).fit(*rows(500, 0))
    held, fresh = rows(900, 1)[0], rows(1000, 2)[0]
    threshold = classifier.calibrate(held, false_alarm_rate=0.1, by="prediction")
    regret, predicted = classifier.regret(held), classifier.predict(held)
    limits = np.empty(3)
    for label in range(3):
        ascending = np.sort(regret[predicted == label])
        limits[label] = ascending[int(np.ceil(0.9 * (len(ascending) + 1) - 1e-9)) - 1]
    np.testing.assert_allclose([found.value for found in threshold.classes], limits)
    flagged = classifier.is_ood(fresh)
    assert (flagged == (classifier.regret(fresh) > limits[classifier.predict(fresh)])).all()
    assert ((classifier.p_value(fresh) <= 0.1) == flagged).all()


@pytest.mark.parametrize("estimator", [PNMLClassifier(PIPELINE), PNMLOutlierDetector()])
def test_training_rows_are_recognised_unless_they_are_said_to_be_training_rows(estimator: Any) -> None:
    X, y = rows(500, 0)
    estimator.fit(X, y)
    with pytest.warns(TrainingRowsWarning, match="500 of 500 calibration samples were recognised as training rows"):
        assert estimator.calibrate(X).source == "not held-out"
    assert estimator.calibrate(X, leave_one_out=True).source == "leave-one-out"


def test_fitting_again_forgets_the_threshold() -> None:
    classifier = PNMLClassifier().fit(*rows(100, 0))
    with pytest.raises(ValueError, match=r"no threshold is set: call calibrate\(X_held_out"):
        classifier.is_ood(np.zeros((1, 5)))
    classifier.calibrate(rows(100, 1)[0])
    classifier.fit(*rows(100, 0))
    with pytest.raises(ValueError, match="no threshold is set"):
        classifier.p_value(np.zeros((1, 5)))
