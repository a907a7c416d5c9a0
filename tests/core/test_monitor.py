"""The monitor: alarms with and without a change, state that resumes, and what it refuses."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_digits, load_iris
from sklearn.linear_model import LogisticRegression

import pnml
from pnml import Detector, Monitor
from pnml.backend.state import save_state
from pnml.core.calibration import calibrate
from pnml.core.martingale import Martingale
from pnml.core.monitor import CalibrationSourceWarning
from pnml.core.monitor_state import KIND, VERSION, to_state
from pnml.core.multilabel import MultiLabelDetector

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Vector = np.ndarray[Any, Any]
RNG = np.random.default_rng(0)
THRESHOLD = calibrate(RNG.normal(size=300), predictions=RNG.integers(0, 3, 300), false_alarm_rate=0.1)


def watched(monitor: Monitor, stream: Vector, sizes: list[int], **columns: Vector) -> Monitor:
    """Update with batches of these sizes, and then with the rest."""
    ends = np.minimum(np.cumsum(sizes), len(stream))
    named = {"scores": stream, **columns}
    for part in zip(*(np.split(column, ends) for column in named.values()), strict=True):
        monitor.update(**dict(zip(named, part, strict=True)))
    return monitor


def facts(monitor: Monitor) -> dict[str, Any]:
    arrays, info = to_state(monitor)
    return {**arrays, **{name: value for name, value in info.items() if name != "threshold"}}


def check_same(one: Monitor, other: Monitor) -> None:
    left, right = facts(one), facts(other)
    assert left.keys() == right.keys()
    for name, value in left.items():
        if isinstance(value, np.ndarray) and value.dtype == np.int64:
            np.testing.assert_array_equal(value, right[name], err_msg=name)
        elif isinstance(value, np.ndarray | float):
            np.testing.assert_allclose(value, right[name], rtol=1e-11, atol=1e-11, err_msg=name)
        else:
            assert value == right[name]


@pytest.mark.slow
@pytest.mark.parametrize("count", [50, 200, 1000])
def test_long_streams_without_a_change_alarm_as_seldom_as_promised_however_few_calibrate(count: int) -> None:
    rng, alpha, streams = np.random.default_rng(count), 0.2, 40
    alarms = [
        Monitor(calibrate(rng.normal(size=count)), alpha=alpha, seed=seed).update(rng.normal(size=12_000))
        for seed in range(streams)
    ]
    assert np.mean(alarms) <= alpha


def test_p_values_of_a_fixed_calibration_set_would_alarm_falsely() -> None:
    """Why the monitor ranks samples among those before them: the luck of 50 calibration samples shows in the end."""
    rng, count, streams = np.random.default_rng(1), 50, 60
    p_values = np.empty((3000, streams))
    for number in range(streams):
        held = np.sort(rng.normal(size=count))
        above = count - np.searchsorted(held, rng.normal(size=3000))
        p_values[:, number] = (above + 1 - rng.random(3000)) / (count + 1)
    martingale = Martingale((streams,))
    peak = np.max([martingale.grow(part).max(axis=0) for part in np.split(p_values, 30)], axis=0)
    assert (peak >= math.log(100)).mean() > 0.4


def digits() -> tuple[Detector, Vector, Vector]:
    """Return a detector of the digits 0 to 7, embeddings of fresh ones, and of 8s and 9s."""
    images, labels = load_digits(return_X_y=True)
    known = np.random.default_rng(0).permutation(np.flatnonzero(labels < 8))
    train, held_out, fresh = np.split(known, [600, 1000])
    model = LogisticRegression(max_iter=2000).fit(images[train] / 16, labels[train])
    detector = Detector(model.coef_, model.intercept_).fit(images[train] / 16)
    detector.calibrate(images[held_out] / 16, false_alarm_rate=0.05)
    return detector, images[fresh] / 16, images[labels >= 8] / 16


def test_unknown_digits_are_noticed_within_200_samples() -> None:
    detector, known, unknown = digits()
    monitor = Monitor(detector)
    assert not monitor.update(detector(known))
    for number in range(200):
        if monitor.update(detector(unknown[number : number + 1])):
            break
    assert monitor.alarm_at == len(known) + number + 1
    assert monitor.since is not None
    assert abs(monitor.since - len(known) - 1) <= 20
    assert monitor.evidence >= 100
    assert f"evidence {monitor.evidence:.3g}, since sample {monitor.since:,}" in monitor.verdict


@settings(max_examples=25)
@given(st.lists(st.integers(0, 900), max_size=6), st.integers(0, 3))
def test_batches_of_any_size_give_the_same_state(sizes: list[int], seed: int) -> None:
    rng = np.random.default_rng(seed)
    stream = rng.normal(size=1500).round(1)  # with ties
    stream[rng.integers(0, 1500, 20)] = np.nan
    stream[1000:] += seed
    prediction = rng.integers(0, 3, 1500)
    whole, parts = Monitor(THRESHOLD, seed=seed), Monitor(THRESHOLD, seed=seed)
    whole.update(stream, prediction)
    check_same(whole, watched(parts, stream, sizes, prediction=prediction))
    assert (whole.alarm_at, whole.since, whole.count) == (parts.alarm_at, parts.since, 1500)


def test_a_saved_monitor_goes_on_where_it_left_off(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    stream, prediction = np.append(rng.normal(size=900), rng.normal(loc=2, size=100)), rng.integers(0, 3, 1000)
    whole = Monitor(THRESHOLD, alpha=0.001)
    whole.update(stream, prediction)
    assert whole.alarm_at is not None
    monitor = Monitor(THRESHOLD, alpha=0.001)
    for part in np.split(np.arange(1000), [0, 1, 400, 960, 1000]):  # once before any sample
        monitor.update(stream[part], prediction[part])
        monitor.save(tmp_path / "monitor.safetensors")
        monitor = Monitor.load(tmp_path / "monitor.safetensors")
    check_same(whole, monitor)
    assert repr(whole) == repr(monitor)
    first = (tmp_path / "monitor.safetensors").read_bytes()
    monitor.save(tmp_path / "monitor.safetensors")
    assert (tmp_path / "monitor.safetensors").read_bytes() == first


def test_thresholds_by_class_are_kept(tmp_path: Path) -> None:
    rng = np.random.default_rng(3)
    threshold = calibrate(rng.normal(size=300), predictions=rng.integers(0, 2, 300), by="prediction")
    monitor = Monitor(threshold)
    scores, prediction = rng.normal(size=50), rng.integers(0, 2, 50)
    monitor.save(tmp_path / "m.safetensors")
    monitor = Monitor.load(tmp_path / "m.safetensors")
    monitor.update(scores, prediction)
    assert monitor.history.flagged.sum() == threshold.is_ood(scores, prediction).sum()
    with pytest.raises(ValueError, match="pass predictions"):
        monitor.update(scores)


def test_classes_and_layers_of_a_result_are_counted() -> None:
    rng = np.random.default_rng(4)
    features, layer = rng.normal(size=(400, 6)), rng.normal(size=(400, 4))
    detector = Detector(rng.normal(size=(3, 6))).fit(features[:200], features=[layer[:200]])
    detector.calibrate(features[200:], features=[layer[200:]], false_alarm_rate=0.1)
    result = detector(3 * features[:100] + 1, features=[9 * layer[:100]])
    monitor = Monitor(detector)
    monitor.update(result)
    assert result.is_ood is not None
    assert monitor.history.flagged.sum() == result.is_ood.sum() > 0
    counted = monitor.history.layer_flagged.sum(axis=0)
    assert counted.tolist() == np.bincount(result.strangest_layer[result.is_ood], minlength=2).tolist()
    assert monitor.history.class_samples.sum(axis=0).tolist() == np.bincount(result.prediction, minlength=3).tolist()


def test_results_of_before_the_calibration_are_decided_by_the_threshold() -> None:
    detector, known, _ = digits()
    threshold, detector.threshold = detector.threshold, None
    assert threshold is not None
    result = detector(known)
    assert not result.is_calibrated
    monitor = Monitor(threshold)
    monitor.update(result)
    assert monitor.history.flagged.sum() == threshold.is_ood(result.regret).sum() > 0


def test_labels_that_may_each_be_true_are_watched_by_their_score() -> None:
    rng = np.random.default_rng(5)
    rows = rng.normal(size=(300, 6))
    detector = MultiLabelDetector(np.vstack([np.zeros(6), rng.normal(size=(3, 6))])).fit(rows[:150])
    detector.calibrate(rows[150:])
    monitor = Monitor(detector)
    monitor.update(detector(rows[:50]))
    assert monitor.count == 50
    assert monitor.history.class_samples.sum() == 0


def test_an_estimator_of_scikit_learn_is_watched() -> None:
    rows, labels = load_iris(return_X_y=True)
    classifier = pnml.PNMLClassifier(LogisticRegression(max_iter=1000)).fit(rows[::2], labels[::2])
    classifier.calibrate(rows[1::2])
    monitor = Monitor(classifier)
    monitor.update(classifier.regret(rows[:40]))
    assert monitor.threshold is classifier.detector_.threshold


def test_layers_are_watched_by_results() -> None:
    rng = np.random.default_rng(0)
    train, held, new = (rng.normal(size=(400, 10)) for _ in range(3))
    detector = Detector(rng.normal(size=(3, 6))).fit(train[:, :6], features=[train[:, 6:]])
    detector.calibrate(held[:, :6], features=[held[:, 6:]])
    monitor = Monitor(detector)
    result = detector(new[:, :6], features=[new[:, 6:]])
    monitor.update(result)
    assert result.is_ood is not None
    assert monitor.layer_names == detector.watched_names == ("layer0", "lengths")
    (whole,) = monitor.periods
    assert whole.layer_flagged.sum() == whole.flagged == int(result.is_ood.sum()) > 0


def test_evidence_beyond_floats_is_infinite_and_written_as_a_power() -> None:
    monitor = Monitor(calibrate(np.arange(100_000.0)))
    monitor.update(np.full(400, 1e9) + np.arange(400) * 1e6)
    assert monitor.evidence == math.inf
    assert f"evidence 10^{monitor.log_peak / math.log(10):.1f}, since sample 1" in monitor.verdict


def test_a_monitor_of_nothing_says_so() -> None:
    assert repr(Monitor(THRESHOLD)) == (
        "Monitor(0 samples: no change noticed: the evidence was 1 at most, and 100 raises an alarm)"
    )
    assert not Monitor(THRESHOLD).update([])
    assert Monitor(THRESHOLD).periods == ()


@pytest.mark.parametrize("source", ["leave-one-out", "not held-out", "repeated"])
def test_calibration_on_training_rows_is_warned_of(source: str) -> None:
    with pytest.warns(CalibrationSourceWarning, match=f"calibration scores are {source}"):
        Monitor(calibrate(np.arange(99.0), source=source))


@pytest.mark.parametrize(
    ("how", "message"),
    [
        (lambda: Monitor(THRESHOLD, alpha=0), "alpha must lie between 0 and 1, got 0"),
        (lambda: Monitor(THRESHOLD, seed=-1), "seed must be a whole number from 0 on, got -1"),
        (lambda: Monitor(Detector(np.eye(2))), "got Detector without a threshold: call calibrate"),
        (lambda: Monitor(0.3), "got float without a threshold"),
        (lambda: Monitor(THRESHOLD).update(np.ones((2, 2))), r"expected regrets of shape \(m,\), got shape \(2, 2\)"),
        (lambda: Monitor(THRESHOLD).update([0.1], prediction=[1, 2]), r"one prediction for each of 1 regrets"),
        (lambda: Monitor(THRESHOLD).update([0.1], prediction=[3]), "expected predictions from 0 to 2, got 3"),
        (lambda: Monitor(THRESHOLD).update([0.1], strangest_layer=[1]), "strangest_layer holds 1 to 1: expected 0"),
    ],
)
def test_refusals_name_the_value(how: Callable[[], object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        how()


BROKEN: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "the entry 'alpha' is 2": lambda arrays, info: info.update(alpha=2),
    "the entry 'bets' is": lambda arrays, info: info.update(bets=[]),
    "the entry 'seed' is missing": lambda arrays, info: info.pop("seed"),
    "the entry 'more' is not known": lambda arrays, info: info.update(more=1),
    "the entry 'threshold' is": lambda arrays, info: info.update(threshold=None),
    "the array 'keys' is missing": lambda arrays, info: arrays.pop("keys"),
    "the array 'gains' holds": lambda arrays, info: arrays.update(gains=np.zeros(3)),
    "numbers that are not finite": lambda arrays, info: arrays.update(gains=arrays["gains"] * np.nan),
    "not ascending, or some were not seen": lambda arrays, info: arrays.update(keys=arrays["keys"][::-1]),
    "are not 300 of the calibration and 5 of the stream": lambda arrays, info: info.update(count=5),
    "alarm and windows do not fit 6 samples": lambda arrays, info: info.update(alarm_at=7, since=1),
}


@pytest.mark.parametrize("message", BROKEN)
def test_files_that_cannot_be_right_are_refused(message: str, tmp_path: Path) -> None:
    monitor = Monitor(THRESHOLD)
    monitor.update(np.arange(6.0))
    arrays, info = to_state(monitor)
    BROKEN[message](arrays, info)
    save_state(tmp_path / "made.safetensors", KIND, VERSION, arrays, info)
    with pytest.raises(ValueError, match=rf"made.safetensors holds no monitor.*{message}.*start a new one"):
        Monitor.load(tmp_path / "made.safetensors")


def test_a_detector_is_no_monitor(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        Detector(np.eye(2)).fit(np.eye(2)).save(tmp_path / "d.safetensors")
    with pytest.raises(ValueError, match=r"d.safetensors holds no pnml.monitor but pnml.detector"):
        Monitor.load(tmp_path / "d.safetensors")
