"""Training rows with copies: leaving one out leaves its copies in, which a calibration on them has to say."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

from pnml import Detector, PNMLOutlierDetector
from pnml.core.calibration_scores import CalibrationScores, RepeatedRowsWarning
from pnml.core.sample import RowSample

if TYPE_CHECKING:
    from pathlib import Path

Matrix = np.ndarray[Any, Any]
WEIGHT = np.random.default_rng(0).normal(size=(5, 60))
ONCE = np.random.default_rng(1).normal(size=(300, 60))
TWICE = np.repeat(ONCE, 2, axis=0)
FRESH = np.random.default_rng(2).normal(size=(5000, 60))


def fitted(rows: Any, scale: Any = "paper") -> Detector:
    return Detector(WEIGHT, embedding_scale=scale).fit(rows)


@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
@pytest.mark.parametrize("scale", ["auto", "paper", "natural"])
def test_leave_one_out_of_doubled_rows_warns_and_its_source_says_so(scale: Any, library: Any, tmp_path: Path) -> None:
    detector = fitted(library(TWICE), scale)
    detector.save(tmp_path / "detector.safetensors")
    for one in (detector, Detector.load(tmp_path / "detector.safetensors")):
        with pytest.warns(RepeatedRowsWarning, match=r"^100% of the training rows have copies .* held-out samples"):
            threshold = one.calibrate(TWICE, leave_one_out=True)
        assert threshold.source == "repeated"
    with pytest.warns(RepeatedRowsWarning, match=r"np\.unique\(rows, axis=0\)"):
        assert detector.set_threshold(np.arange(100.0), leave_one_out=True).source == "repeated"


def test_the_rate_is_as_asked_for_once_rows_are_fitted_once() -> None:
    with pytest.warns(RepeatedRowsWarning):
        fitted(TWICE).calibrate(TWICE, leave_one_out=True)
    detector = fitted(np.unique(TWICE, axis=0))
    threshold = detector.calibrate(np.unique(TWICE, axis=0), leave_one_out=True)
    assert threshold.source == "leave-one-out"
    low, high = threshold.interval
    assert low < detector.is_ood(FRESH).mean() < high
    doubled = fitted(TWICE)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RepeatedRowsWarning)
        doubled.calibrate(TWICE, leave_one_out=True)
    assert doubled.is_ood(FRESH).mean() > 0.15


def test_few_copies_and_held_out_rows_do_not_warn() -> None:
    few = np.vstack([ONCE, ONCE[:14]])  # 28 of 314 rows
    assert fitted(few).calibrate(few, leave_one_out=True).source == "leave-one-out"
    assert fitted(TWICE).calibrate(FRESH[:500]).source == "held-out"


@pytest.mark.parametrize("copied", [0, 1000, 5000])
def test_the_share_is_that_of_all_rows(copied: int) -> None:
    rows = np.random.default_rng(3).normal(size=(5000, 4))
    train = np.vstack([rows, rows[:copied]])
    share = 2 * copied / (5000 + copied)
    assert RowSample.of(train).repeated == pytest.approx(share, abs=0.1)
    parts = RowSample.of(rows) + RowSample.of(rows[:copied]) if copied else RowSample.of(rows)
    assert parts.repeated == RowSample.of(train).repeated


def test_batches_warn_once() -> None:
    detector = fitted(TWICE)
    parts = [detector.calibration_scores(TWICE[part::3], leave_one_out=True) for part in range(3)]
    with pytest.warns(RepeatedRowsWarning, match="^100%") as caught:
        CalibrationScores.join(parts).threshold(false_alarm_rate=0.05, by=None)
    assert len(caught) == 1


def test_estimators_warn_when_they_are_calibrated() -> None:
    detector = PNMLOutlierDetector().fit(TWICE)
    with pytest.warns(RepeatedRowsWarning, match="^100%"):
        detector.calibrate(TWICE, leave_one_out=True)
