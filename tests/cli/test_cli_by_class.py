"""Calibration by predicted class and on training rows, on the command line."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pnml import Detector
from pnml.cli._words import describe_classes
from pnml.core.calibration import calibrate

from .cli_files import Files, make_files, run, succeeds, table_of

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.filterwarnings("default::UserWarning")  # which the command prints


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """Give files; of the rows in many.npy one class has too few for a rate of 2 %."""
    made = make_files(tmp_path)
    np.save(tmp_path / "many.npy", np.random.default_rng(5).normal(size=(150, 8)).astype(np.float32))
    return made


def calibrated(files: Files) -> tuple[Path, Any]:
    path = files.fitted()
    done = run(
        "calibrate", path, "--embeddings", files / "many.npy", "--by", "prediction", "--false-alarm-rate", "0.02"
    )
    assert done.exit_code == 0, done.output
    return path, done


def test_calibrate_by_prediction_writes_the_thresholds_of_the_library(files: Files) -> None:
    path, done = calibrated(files)
    expected = Detector.load(path)
    with pytest.warns(UserWarning, match="predicted classes have fewer than 49"):
        threshold = expected.calibrate(np.load(files / "many.npy"), by="prediction", false_alarm_rate=0.02)
    found = Detector.load(path).threshold
    assert found is not None
    assert found == threshold
    own = [one.is_own for one in found.classes]
    assert 0 < sum(own) < 3, "both kinds occur"
    assert f"{sum(own)} of 3 classes have one of their own" in done.stdout
    assert "for the other classes" in done.stdout
    assert done.stdout.count("guaranteed") == sum(own)
    assert f"{3 - sum(own)} of 3 predicted classes have fewer than 49 calibration samples" in done.stderr
    inspected = succeeds("inspect", path)
    for one in found.classes:
        low, high = one.interval
        kind = "guaranteed" if one.is_own else "measured"
        row = next(line.split() for line in inspected.splitlines() if line.split()[:1] == [str(one.prediction)])
        assert row[:4] == [str(one.prediction), str(one.count), str(one.flagged), f"{one.value:.6g}"]
        assert " ".join(row[4:]) == f"{low:.1%} to {high:.1%}, {kind}"


def test_facts_of_inspect_have_the_classes(files: Files) -> None:
    path, _ = calibrated(files)
    facts = json.loads(succeeds("inspect", path, "--json"))["threshold"]
    threshold = Detector.load(path).threshold
    assert threshold is not None
    assert facts["by"] == "prediction"
    assert [one["value"] for one in facts["classes"]] == [one.value for one in threshold.classes]
    assert [one["own"] for one in facts["classes"]] == [one.is_own for one in threshold.classes]


def test_score_decides_by_class(files: Files) -> None:
    path, _ = calibrated(files)
    said = succeeds("score", path, "--embeddings", files / "new.npy", "--out", files / "scores.csv")
    assert "with a regret above that of their predicted class" in said
    table, result = table_of(files / "scores.csv"), Detector.load(path)(np.load(files / "new.npy"))
    np.testing.assert_array_equal(table["is_ood"], result.is_ood)
    np.testing.assert_allclose(table["p_value"], np.asarray(result.p_value), rtol=1e-6)


def test_training_rows_are_reported_and_not_called_held_out(files: Files) -> None:
    path = files.fitted()
    done = run("calibrate", path, "--embeddings", files / "train.npy")
    assert done.exit_code == 0
    assert "300 of 300 calibration samples were recognised as training rows" in done.stderr
    assert "--leave-one-out" in done.stderr
    assert "set from 300 not held-out samples" in done.stdout
    assert "training rows were recognised among these samples" in succeeds("inspect", path)
    done = run("calibrate", path, "--embeddings", files / "train.npy", "--leave-one-out")
    assert "recognised" not in done.stderr
    done = run("calibrate", path, "--embeddings", files / "held.npy")
    assert "recognised" not in done.stderr


def test_of_many_classes_the_most_flagged_are_listed() -> None:
    rng = np.random.default_rng(0)
    predictions = np.repeat(np.arange(100), 50)
    threshold = calibrate(rng.gamma(2, size=5000) + predictions / 10, predictions=predictions)
    words, _, *lines, advice = describe_classes(threshold)
    assert "the 40 most flagged of 100 predicted classes" in words
    shown = [int(line.split()[0]) for line in lines]
    flagged = {one.prediction: one.flagged for one in threshold.classes}
    assert len(shown) == 40
    assert min(flagged[number] for number in shown) >= sorted(flagged.values())[-40]
    assert re.match(r"classes (\d+, ){5}\.\.\. are flagged more often than 5%: pnml calibrate --by prediction", advice)
