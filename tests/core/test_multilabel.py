"""Several labels a sample: the regret of each is that of a classifier of two classes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pnml import Detector
from pnml.core.multilabel import MultiLabelDetector

if TYPE_CHECKING:
    from pathlib import Path

LABELS, FEATURES = 4, 6


def head(seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(seed)
    weight, bias = rng.normal(size=(LABELS, FEATURES)), rng.normal(size=LABELS)
    return np.vstack([np.zeros(FEATURES), weight]), np.concatenate([[0], bias])


def rows(count: int, seed: int = 1) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    return rng.normal(size=(count, FEATURES)) * np.geomspace(1, 0.05, FEATURES) + 0.3


def genie(p: np.ndarray[Any, Any], t: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Lemma 1, written out."""
    found: np.ndarray[Any, Any] = p / (p + p**t * (1 - p))
    return found


@pytest.mark.parametrize("scale", ["natural", "paper"])
def test_regret_of_a_label_is_that_of_two_classes(scale: Any) -> None:
    weight, bias = head()
    train, fresh = rows(300), 3 * rows(20, seed=2)
    result: Any = MultiLabelDetector(weight, bias, embedding_scale=scale).fit(train)(fresh)
    if scale == "paper":
        train, fresh = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (train, fresh))
    h = np.einsum("nm,mk,nk->n", fresh, np.linalg.inv(train.T @ train), fresh)
    t = (h / (1 + h))[:, None]
    p = 1 / (1 + np.exp(-(fresh @ weight[1:].T + bias[1:])))
    true, false = genie(p, t), genie(1 - p, t)
    np.testing.assert_allclose(result.xtg, t[:, 0], rtol=1e-9)
    np.testing.assert_allclose(result.regret, np.log(true + false), rtol=1e-8, atol=1e-12)
    np.testing.assert_allclose(result.pnml_probabilities, true / (true + false), rtol=1e-8)
    np.testing.assert_array_equal(result.score, result.regret.max(axis=1))


def test_each_label_alone_scores_as_a_detector_of_two_classes_does() -> None:
    weight, bias = head()
    train, fresh = rows(300), rows(20, seed=2)
    together = MultiLabelDetector(weight, bias, embedding_scale="paper").fit(train)(fresh)
    for label in range(1, LABELS + 1):
        alone = Detector(weight[[0, label]], bias[[0, label]], embedding_scale="paper").fit(train)(fresh)
        np.testing.assert_allclose(together.regret[:, label - 1], alone.regret, rtol=1e-9)
        np.testing.assert_allclose(together.pnml_probabilities[:, label - 1], alone.pnml_probabilities[:, 1], rtol=1e-9)


def test_one_label_scores_as_two_classes_by_default_too() -> None:
    weight, bias = head()
    weight, bias = weight[:2], bias[:2]
    train, fresh = rows(300), rows(20, seed=2)
    one = MultiLabelDetector(weight, bias).fit(train)(fresh)
    np.testing.assert_allclose(one.regret[:, 0], Detector(weight, bias).fit(train)(fresh).regret, rtol=1e-6)


def test_probabilities_and_predictions_are_of_each_label() -> None:
    weight, bias = head()
    fresh = rows(20, seed=2)
    result = MultiLabelDetector(weight, bias).fit(rows(300))(fresh)
    z = fresh @ weight[1:].T + bias[1:]
    np.testing.assert_allclose(result.logits, z, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.probabilities, 1 / (1 + np.exp(-z)), rtol=1e-9)
    np.testing.assert_array_equal(result.prediction, z > 0)
    assert (result.regret >= 0).all()
    assert (result.regret <= np.log(2)).all()


def test_threshold_is_for_the_largest_regret_and_is_saved(tmp_path: Path) -> None:
    weight, bias = head()
    detector = MultiLabelDetector(weight, bias).fit(rows(300))
    threshold = detector.calibrate(rows(199, seed=3), false_alarm_rate=0.05)
    fresh = rows(20, seed=2) + np.linspace(0, 3, 20)[:, None] * np.eye(FEATURES)[FEATURES - 1]
    result = detector(fresh)
    np.testing.assert_array_equal(threshold.scores, np.sort(detector.score(rows(199, seed=3))))
    np.testing.assert_array_equal(result.is_ood, result.regret.max(axis=1) > threshold.value)
    assert result.is_ood is not None
    assert result.is_ood.any()
    detector.save(tmp_path / "detector.safetensors")
    loaded = Detector.load(tmp_path / "detector.safetensors")
    assert isinstance(loaded, MultiLabelDetector)
    np.testing.assert_array_equal(loaded(fresh).regret, result.regret)
    assert list(result.to_table())[:3] == ["score", "xtg", "probability_0"]


def test_parts_and_copies_keep_every_field() -> None:
    detector = MultiLabelDetector(*head()).fit(rows(300))
    detector.calibrate(rows(199, seed=3))
    result: Any = detector(rows(20, seed=2))
    part: Any = result[3:5].numpy()
    np.testing.assert_array_equal(part.score, result.score[3:5])
    np.testing.assert_array_equal(part.regret, result.regret[3:5])
    assert set(part.to_table()) == set(result.to_table())
    assert "20 samples" in repr(result)
    assert "1 sample," in repr(result[0]), "there is no single class to name"


def test_thresholds_by_prediction_are_by_the_strongest_label() -> None:
    weight, bias = head()
    bias[1:] = -0.5  # so that often no label is likely
    detector = MultiLabelDetector(weight, bias).fit(rows(600))
    held_out, fresh = rows(600, seed=3), rows(200, seed=2)
    threshold = detector.calibrate(held_out, by="prediction", false_alarm_rate=0.2)
    strongest = (fresh @ weight.T + bias).argmax(axis=1)
    of_class = np.array([one.value for one in threshold.classes])
    result: Any = detector(fresh)
    np.testing.assert_array_equal(result.is_ood, result.score > of_class[strongest])
    assert len(set(of_class)) > 1


def test_rows_that_are_not_finite_are_flagged() -> None:
    detector = MultiLabelDetector(*head()).fit(rows(300))
    detector.calibrate(rows(199, seed=3))
    bad = rows(4, seed=2)
    bad[1, 2] = np.nan
    result: Any = detector(bad)
    assert np.isnan(result.score).tolist() == [False, True, False, False]
    assert result.is_ood[1]
    np.testing.assert_allclose(result.regret[[0, 2, 3]], detector(bad[[0, 2, 3]]).regret, rtol=1e-9)


def test_no_rows_give_an_empty_result() -> None:
    result: Any = MultiLabelDetector(*head()).fit(rows(300))(np.empty((0, FEATURES)))
    assert result.regret.shape == (0, LABELS)
    assert result.score.shape == (0,)


def test_left_out_rows_have_larger_scores_than_fitted_ones() -> None:
    weight, bias = head()
    train = rows(40)
    detector = MultiLabelDetector(weight, bias, embedding_scale="paper").fit(train)
    assert (detector.score(train, leave_one_out=True) >= detector.score(train)).all()


def test_an_embedding_without_direction_has_the_largest_regret() -> None:
    detector = MultiLabelDetector(*head()).fit(rows(300))
    np.testing.assert_allclose(detector(np.zeros((1, FEATURES))).regret, np.log(2))


def test_the_first_class_must_be_no_label() -> None:
    with pytest.raises(ValueError, match="the first row of the weight and of the bias must be 0"):
        MultiLabelDetector(np.eye(3))
