"""What a detector refuses, and in which words."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from oracles import by_pseudo_inverse
from pnml import Correlation, Detector
from pnml.core.detector import FewRowsWarning

if TYPE_CHECKING:
    from pathlib import Path

Matrix = np.ndarray[Any, Any]

WEIGHT = np.random.default_rng(0).normal(size=(5, 12))
TRAIN = np.random.default_rng(1).normal(size=(200, 12))


def fitted() -> Detector:
    return Detector(WEIGHT).fit(TRAIN)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (np.zeros((2, 11)), "expected rows of 12 features, got 11"),
        (np.zeros(12), r"expected a 2-D batch .* got shape \(12,\)"),
        (np.zeros((0, 12)), "expected at least one embedding, got none"),
        (np.array([["a"] * 12]), "expected rows of real numbers, got <U1"),
        (np.where(np.arange(36).reshape(3, 12) == 29, np.nan, 1.0), "row 2 holds nan in column 5"),
        (np.where(np.arange(36).reshape(3, 12) == 13, np.inf, 1.0), "row 1 holds inf in column 1"),
    ],
)
def test_bad_embeddings_are_refused_by_name(rows: Matrix, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted().score(rows)


def test_a_bad_batch_leaves_the_fitted_detector_as_it_was() -> None:
    detector = fitted()
    threshold, scores = detector.calibrate(TRAIN), detector.score(TRAIN)
    broken = np.vstack([TRAIN, np.full(12, np.nan)])
    for change in (detector.partial_fit, detector.fit):
        with pytest.raises(ValueError, match="row 200 holds nan in column 0"):
            change(broken)
    assert detector.correlation.count == 200
    assert detector.threshold == threshold
    assert (detector.score(TRAIN) == scores).all()


def test_what_comes_too_early_says_what_is_missing() -> None:
    with pytest.raises(ValueError, match=r"not fitted: call fit"):
        Detector(WEIGHT).score(TRAIN)
    with pytest.raises(ValueError, match=r"not fitted: call fit"):
        Detector(WEIGHT).fit(TRAIN[:0]).score(TRAIN)
    with pytest.raises(ValueError, match=r"no threshold is set: call calibrate"):
        fitted().is_ood(TRAIN)


def test_a_head_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one entry per class, 5, got shape \(3,\)"):
        Detector(np.ones((5, 12)), np.zeros(3))
    with pytest.raises(ValueError, match="2-D"):
        Detector(np.ones(12))
    with pytest.raises(ValueError, match=r"embedding_scale must be one of .* got 'long'"):
        Detector(np.ones((5, 12)), embedding_scale="long")  # type: ignore[arg-type]


def test_statistics_that_do_not_fit_are_not_merged() -> None:
    detector = fitted()
    with pytest.raises(ValueError, match="unit norm"):
        detector.merge(Correlation().update(np.ones((1, 12))))
    narrow = Correlation(unit_norm=True).update(np.ones((1, 5)))
    for receiver in (detector, Detector(detector.weight)):
        with pytest.raises(ValueError, match=r"12 and 5|5 and 12"):
            receiver.merge(narrow)


def test_files_that_hold_no_whole_detector_are_refused(tmp_path: Path) -> None:
    whole, path = tmp_path / "whole.safetensors", tmp_path / "other.safetensors"
    fitted().save(whole)

    path.write_bytes(whole.read_bytes()[:-100])
    with pytest.raises(ValueError, match=r"other\.safetensors is not a whole safetensors file"):
        Detector.load(path)
    path.write_text("regret, xtg\n")
    with pytest.raises(ValueError, match=r"other\.safetensors is not a whole safetensors file"):
        Detector.load(path)
    save_file({"weight": np.eye(2)}, path)
    with pytest.raises(ValueError, match=r"holds no pnml\.detector but a file that pnml did not write"):
        Detector.load(path)
    Correlation().update(np.eye(2)).save(path)
    with pytest.raises(ValueError, match=r"holds no pnml\.detector but pnml\.correlation"):
        Detector.load(path)
    with safe_open(whole, framework="numpy") as file:
        metadata = file.metadata()
    save_file(load_file(whole), path, metadata | {"version": "2", "written_by": "pnml 9.0"})
    with pytest.raises(ValueError, match=r"format 2, written by pnml 9\.0; .* reads up to format 1: pip install -U"):
        Detector.load(path)
    with pytest.raises(FileNotFoundError):
        Detector.load(tmp_path / "nowhere.safetensors")


def test_too_few_rows_are_announced() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 8))
    with pytest.warns(FewRowsWarning, match="5 training rows for 8 features"):
        Detector(np.eye(8)).fit(rows).score(rows)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bias_that_is_not_finite_is_named(bad: float) -> None:
    with pytest.raises(ValueError, match=f"bias holds {bad}: every value must be finite"):
        Detector(WEIGHT, np.array([0.0, bad, 0.0, 0.0, 0.0]))


def older(detector: Detector, folder: Path, *lacking: str) -> Detector:
    """Load the detector from a file that says nothing about what older versions did not know."""
    detector.save(folder / "detector.safetensors")
    with safe_open(folder / "detector.safetensors", "np") as file:
        metadata = file.metadata()
    about = json.loads(metadata["info"])
    for name in lacking:
        del about[name]
    arrays = load_file(folder / "detector.safetensors")
    save_file(arrays, folder / "older.safetensors", metadata={**metadata, "info": json.dumps(about)})
    return Detector.load(folder / "older.safetensors")


def test_files_from_before_the_bias_shrank_along_score_as_they_did(tmp_path: Path) -> None:
    """Their length was solved for with the bias as it is."""
    detector = Detector(WEIGHT, np.arange(5.0)).fit(TRAIN)
    loaded = older(detector, tmp_path, "bias_scale", "label_noise")
    assert loaded.embedding_length == detector.embedding_length
    np.testing.assert_array_equal(loaded.scaled_head[1], np.arange(5.0))


def test_files_from_before_label_noise_score_as_they_did(tmp_path: Path) -> None:
    """As of norm 1 with a head of their length, which "paper" believes entirely; also when saved anew."""
    detector = Detector(WEIGHT, np.arange(5.0)).fit(TRAIN)
    loaded = older(detector, tmp_path, "label_noise")
    expected = by_pseudo_inverse(*detector.scaled_head, TRAIN, TRAIN, "paper")["regret"]
    again = older(loaded, tmp_path)
    for one in (loaded, again):
        assert (one.embedding_scale, one.label_noise) == ("auto", 0.0)
        np.testing.assert_allclose(one.score(TRAIN), expected, rtol=1e-9)
    assert not np.allclose(detector.score(TRAIN), expected, rtol=1e-3)
    np.testing.assert_array_equal(loaded.fit(TRAIN).score(TRAIN), detector.score(TRAIN))
