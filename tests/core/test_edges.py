"""The last bit, the last index, the share that is just harmless: where one step more would be another answer."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from scipy.optimize import brentq
from scipy.special import expit
from scipy.stats import entropy

from oracles import leverages_about_means
from pnml import Correlation, Detector
from pnml.core.calibration import PooledClassesWarning, calibrate
from pnml.core.calibration_scores import CalibrationScores, TrainingRowsWarning
from pnml.core.multilabel import MultiLabelDetector
from pnml.core.sample import Recognised
from pnml.core.scaling import balanced_label_scales, balanced_length
from pnml.core.scatter import Scatter
from pnml.core.scorer import Chunk, compute_terms
from pnml.core.selection import select
from pnml.core.theorem import noisy_log_softmax

if TYPE_CHECKING:
    from pathlib import Path

LIBRARIES: list[Any] = [np.asarray, torch.tensor]


def detector(n: int = 60, classes: int = 3) -> tuple[Detector, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n, 6))
    return Detector(rng.normal(size=(classes, 6)), rng.normal(size=classes)).fit(rows), rows


def test_left_out_leverages_are_those_of_explicit_refits() -> None:
    """With the ridge of all rows."""
    fitted, rows = detector()
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    chunk = Chunk(rows, None, 2.0**-52, as_if_unseen=True)
    found = compute_terms(fitted.model, fitted.model.constants(rows, np.float64), chunk).leverages.raw
    assert found is not None
    all_alike = np.zeros(60, dtype=int)
    ridge = Scatter.fit(units.T @ units, np.array([60]), units.sum(axis=0)[None], units, all_alike).ridge
    expected = []
    for number in range(60):
        others, alone = np.delete(units, number, axis=0), units[[number]]
        of_one, _ = leverages_about_means(others, all_alike[1:], alone, all_alike[:1], n_classes=1, ridge=ridge)
        expected.append(of_one[0])
    np.testing.assert_allclose(found[:, 0], np.array(expected), rtol=1e-6)


def test_a_tenth_of_training_rows_is_harmless_and_more_is_not() -> None:
    scores, predictions = np.arange(100.0), np.zeros(100, dtype=int)

    def threshold(known: int) -> str:
        found = CalibrationScores(scores, predictions, 1, leave_one_out=False, recognised=Recognised(known, 100))
        return found.threshold(false_alarm_rate=0.1, by=None).source

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert threshold(10) == "held-out"
    with pytest.warns(TrainingRowsWarning, match="^11 of 100 "):
        assert threshold(11) == "not held-out"


def test_a_threshold_of_scores_alone_knows_of_no_classes() -> None:
    assert calibrate(np.arange(100.0), false_alarm_rate=0.1).n_classes == 0


@pytest.mark.parametrize(
    ("pooled", "named"), [(5, r"1 \(1\), .*, 5 \(1\)\. They"), (6, r"1 \(1\), .*, 5 \(1\), \.\.\.")]
)
def test_five_pooled_classes_are_named_and_more_are_hinted_at(pooled: int, named: str) -> None:
    predictions = np.r_[np.zeros(100, dtype=int), 1 + np.arange(pooled)]
    with pytest.warns(PooledClassesWarning, match=named):
        calibrate(np.arange(100.0 + pooled), false_alarm_rate=0.1, by="prediction", predictions=predictions)


@pytest.mark.parametrize("index", [-1, [-1], np.array([-1]), 0, [0]])
def test_the_only_sample_is_the_first_and_the_last(index: Any) -> None:
    fitted, rows = detector()
    result = fitted(rows[:1])
    assert result[index].regret.tolist() == result.regret.tolist()
    assert fitted(rows[:7])[-7].regret.tolist() == fitted(rows[:7]).regret[:1].tolist()
    with pytest.raises(IndexError, match="below 7, got -8"):
        fitted(rows[:7])[-8]


def test_a_preparation_is_kept_in_the_file_and_none_is_none(tmp_path: Path) -> None:
    fitted, _ = detector()
    for preparation in (None, {"size": 32, "mean": [0.5], "std": [0.25]}):
        fitted.preparation = preparation
        fitted.save(tmp_path / "kept.safetensors")
        assert Detector.load(tmp_path / "kept.safetensors").preparation == preparation


def test_equal_calibration_scores_are_no_reason_to_refuse_a_file(tmp_path: Path) -> None:
    fitted, rows = detector()
    fresh = np.random.default_rng(1).normal(size=(30, 6))
    threshold = fitted.calibrate(np.vstack([fresh, fresh]))
    assert (np.diff(threshold.scores) == 0).any()
    fitted.save(tmp_path / "ties.safetensors")
    np.testing.assert_array_equal(Detector.load(tmp_path / "ties.safetensors")(rows).p_value, fitted(rows).p_value)


def test_a_label_as_likely_as_not_is_not_predicted_and_decisions_join_the_table_once_they_are_made() -> None:
    rng = np.random.default_rng(2)
    rows = rng.normal(size=(80, 5))
    labels = MultiLabelDetector(np.vstack([np.zeros(5), rng.normal(size=(2, 5))]), np.zeros(3)).fit(rows)
    logits = np.array([[0.0, 1.0], [-1.0, 0.0]])
    assert labels(rows[:2], logits=logits).prediction.tolist() == [[False, True], [False, False]]
    assert not {"p_value", "is_ood"} & labels(rows[:2]).to_table().keys()
    labels.calibrate(rng.normal(size=(60, 5)))
    table = labels(rows[:2]).to_table()
    np.testing.assert_array_equal(table["is_ood"], labels(rows[:2]).is_ood)


def test_a_softmax_of_large_logits_is_that_of_their_differences() -> None:
    found = np.exp(noisy_log_softmax(np.array([[800.0, 799.0], [-900.0, -900.0]]), 0.1))
    np.testing.assert_allclose(found[:, 0], 0.9 * expit([1.0, 0.0]) + 0.05, rtol=1e-14)


def test_rows_without_length_have_no_say_in_the_length_of_all() -> None:
    rows, weight = np.random.default_rng(3).normal(size=(20, 4)), np.random.default_rng(4).normal(size=(3, 4))
    without = balanced_length(rows, weight, np.ones(3), mean_norm=2.0)
    assert balanced_length(np.vstack([rows, np.zeros((5, 4))]), weight, np.ones(3), mean_norm=2.0) == without


def test_the_length_of_labels_leaves_a_quarter_of_their_entropy() -> None:
    rng = np.random.default_rng(5)
    rows, weight, bias = 7 * rng.normal(size=(50, 4)), rng.normal(size=(3, 4)), rng.normal(size=3)
    statistic = Correlation(4, unit_norm=True).update(rows)
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    z = rows / norms @ weight.T + bias / norms.mean()

    def above(length: float) -> float:
        p = expit(length * z).ravel()
        return float(entropy([p, 1 - p]).mean()) - math.log(2) / 4

    length, of_bias = balanced_label_scales(statistic, weight, bias)
    assert length == pytest.approx(brentq(above, 1e-6, 1e5), rel=1e-5)
    assert of_bias == pytest.approx(length / norms.mean(), rel=1e-6)


def test_a_p_value_at_its_limit_is_selected_however_it_was_rounded() -> None:
    at_limit = np.array([0.1], dtype=np.float32)  # rounded up
    assert float(at_limit[0]) > 0.1
    assert select(at_limit, fdr=0.1).tolist() == [True]
    assert select(np.array([0.1001], dtype=np.float32), fdr=0.1).tolist() == [False]
