"""Calibration on training rows is recognised, and what is stored of a calibration."""

from __future__ import annotations

import json
import pickle
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file

from pnml import Detector
from pnml.backend.state import save_state
from pnml.core.calibration_scores import CalibrationScores, TrainingRowsWarning
from pnml.core.sample import Recognised, RowSample

if TYPE_CHECKING:
    from pathlib import Path

Matrix = np.ndarray[Any, Any]

FEATURES = 6


def rows(count: int, seed: int) -> Matrix:
    return np.random.default_rng(seed).normal(size=(count, FEATURES))


def fitted(train: Matrix, scale: Any = "auto") -> Detector:
    rng = np.random.default_rng(9)
    return Detector(rng.normal(size=(3, FEATURES)), rng.normal(size=3), embedding_scale=scale).fit(train)


@pytest.mark.parametrize("scale", ["auto", "paper", "natural"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_training_rows_are_recognised_and_no_longer_called_held_out(scale: Any, dtype: Any, tmp_path: Path) -> None:
    train = rows(300, seed=0).astype(dtype)
    fitted(train, scale).save(tmp_path / "detector.safetensors")
    for detector in (fitted(train, scale), Detector.load(tmp_path / "detector.safetensors")):
        with pytest.warns(
            TrainingRowsWarning, match=r"^300 of 300 .* 100% of .* held-out samples, .*leave_one_out=True"
        ):
            assert detector.calibrate(train[::-1]).source == "not held-out"


def test_rows_of_a_large_training_set_are_recognised_by_a_sample_of_it() -> None:
    train = rows(8000, seed=0)
    detector = fitted(train)
    expected = len(in_sample(train[:2000], RowSample.of(train)))
    with pytest.warns(TrainingRowsWarning, match=rf"^{expected} of 2,000 calibration samples .* 100% of those"):
        detector.calibrate(train[:2000])
    with pytest.warns(TrainingRowsWarning, match=r" of 4,000 calibration samples .* (4[4-9]|5[0-6])% of those"):
        detector.calibrate(np.vstack([train[:2000], rows(2000, seed=1)]))


def in_sample(part: Matrix, sample: RowSample) -> list[int]:
    """Give the numbers of the rows that are in the sample."""
    kept = {row.tobytes() for row in sample.numpy()}
    return [number for number, row in enumerate(part) if row.tobytes() in kept]


def test_held_out_rows_a_few_leaked_ones_and_left_out_ones_do_not_warn() -> None:
    train, held_out = rows(300, seed=0), rows(300, seed=1)
    detector = fitted(train)
    assert detector.calibrate(held_out).source == "held-out"
    assert detector.calibrate(np.vstack([held_out, train[:30]])).source == "held-out", "9 % change next to nothing"
    assert detector.calibrate(train, leave_one_out=True).source == "leave-one-out"


def test_values_that_repeat_among_training_rows_are_not_taken_for_leaks() -> None:
    """Rows of few distinct values, such as counts or flags, occur in any two sets."""
    rng = np.random.default_rng(0)
    train, held_out = (rng.integers(0, 2, size=(500, FEATURES)).astype(float) + 1 for _ in range(2))
    assert RowSample.of(train).recognise(held_out).known < 0.1 * len(held_out)
    assert fitted(train).calibrate(held_out).source == "held-out"


def test_batches_are_joined_to_what_the_whole_gives() -> None:
    train, held_out = rows(200, seed=0), rows(90, seed=1)
    detector = fitted(train)
    parts = [detector.calibration_scores(part) for part in (held_out[:50], held_out[50:], train[:7])]
    joined = CalibrationScores.join(parts)
    assert joined.recognised == Recognised(7, 97)
    np.testing.assert_allclose(joined.scores, detector.score(np.vstack([held_out, train[:7]])), rtol=1e-12)
    np.testing.assert_array_equal(joined.predictions, detector.predict(np.vstack([held_out, train[:7]])))
    with pytest.raises(ValueError, match="no samples to calibrate on"):
        CalibrationScores.join([])


@pytest.mark.parametrize("leave_one_out", [True, False])
def test_calibrating_by_class_decides_as_its_threshold_says(leave_one_out: bool) -> None:  # noqa: FBT001
    train, held_out, fresh = (rows(400, seed) for seed in (0, 1, 2))
    detector = fitted(train)
    given = train if leave_one_out else held_out
    threshold = detector.calibrate(given, by="prediction", leave_one_out=leave_one_out, false_alarm_rate=0.1)
    scores, predictions = detector.score(given, leave_one_out=leave_one_out), detector.predict(given)
    result = detector(fresh)
    assert result.is_ood is not None
    assert result.p_value is not None
    for number in range(3):
        mine, mine_fresh = np.sort(scores[predictions == number]), result.prediction == number
        limit = mine[int(np.ceil((len(mine) + 1) * 0.9 - 1e-9)) - 1]
        np.testing.assert_array_equal(result.is_ood[mine_fresh], result.regret[mine_fresh] > limit)
        expected = [(1 + (mine >= regret).sum()) / (1 + len(mine)) for regret in result.regret[mine_fresh]]
        np.testing.assert_allclose(result.p_value[mine_fresh], expected, rtol=1e-12)
    np.testing.assert_array_equal(detector.is_ood(fresh), result.is_ood)
    again = detector.set_threshold(scores, predictions=predictions, by="prediction", false_alarm_rate=0.1)
    assert again.classes == threshold.classes
    np.testing.assert_array_equal(detector(torch.tensor(fresh)).is_ood, result.is_ood)
    np.testing.assert_array_equal(result.to_table()["is_ood"], result.is_ood)


def test_classes_are_those_of_the_logits_that_are_given() -> None:
    """A model whose logits are not those of the embeddings, such as one with a temperature for each class."""
    held_out, fresh = rows(300, seed=1), rows(300, seed=2)
    detector = fitted(rows(300, seed=0))
    turned, turned_fresh = (np.roll(x @ detector.weight.T + detector.bias, 1, axis=1) for x in (held_out, fresh))
    threshold = detector.calibrate(held_out, logits=turned, by="prediction")
    counts = np.bincount(turned.argmax(axis=1), minlength=3)
    assert (
        [one.count for one in threshold.classes] == counts.tolist() != np.bincount(detector.predict(held_out)).tolist()
    )
    result = detector(fresh, logits=turned_fresh)
    limits = np.array([one.value for one in threshold.classes])
    np.testing.assert_array_equal(result.is_ood, result.regret > limits[turned_fresh.argmax(axis=1)])


@pytest.mark.parametrize("by", [None, "prediction"])
def test_saved_and_pickled_detectors_decide_alike(by: Any, tmp_path: Path) -> None:
    detector, fresh = fitted(rows(300, seed=0)), rows(200, seed=2)
    threshold = detector.calibrate(rows(300, seed=1), by=by)
    detector.save(tmp_path / "detector.safetensors")
    for other in (Detector.load(tmp_path / "detector.safetensors"), pickle.loads(pickle.dumps(detector))):  # noqa: S301
        assert other.threshold == threshold
        assert other.threshold.classes == threshold.classes
        np.testing.assert_array_equal(other(fresh).is_ood, detector(fresh).is_ood)
        np.testing.assert_array_equal(other(fresh).p_value, detector(fresh).p_value)


def test_files_without_predictions_load_as_they_did(tmp_path: Path) -> None:
    detector, fresh = fitted(rows(300, seed=0)), rows(200, seed=2)
    detector.calibrate(rows(300, seed=1))
    path = tmp_path / "detector.safetensors"
    detector.save(path)
    arrays = load_file(path)
    with safe_open(path, framework="numpy") as file:
        metadata = file.metadata()
    info = json.loads(metadata["info"])
    del arrays["calibration_predictions"], info["threshold"]["by"], info["threshold"]["n_classes"]
    save_state(path, metadata["kind"], int(metadata["version"]), arrays, info)
    loaded = Detector.load(path)
    assert loaded.threshold == detector.threshold
    assert loaded.threshold is not None
    assert loaded.threshold.classes == ()
    np.testing.assert_array_equal(loaded(fresh).is_ood, detector(fresh).is_ood)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loaded.save(path)
    assert Detector.load(path).threshold == detector.threshold
