"""What a detector refuses, and in which words."""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from pnml import Correlation, Detector
from pnml.core.detector import FewRowsWarning
from pnml.core.multilabel import MultiLabelDetector

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
        (np.array([["a"] * 12]), "expected rows of real numbers, got <U1"),
    ],
)
def test_bad_embeddings_are_refused_by_name(rows: Matrix, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        fitted().score(rows)


def test_a_bad_batch_leaves_the_fitted_detector_as_it_was() -> None:
    detector = fitted()
    threshold, scores = detector.calibrate(TRAIN, leave_one_out=True), detector.score(TRAIN)
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


@pytest.mark.parametrize("shape", [(200, 4), (199, 5), (200,)])
def test_logits_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    detector = fitted()
    for use in (detector, detector.calibrate):
        with pytest.raises(ValueError, match=rf"expected logits of shape \(200, 5\).* got {re.escape(str(shape))}"):
            use(TRAIN, logits=np.zeros(shape))
    labels = MultiLabelDetector(np.vstack([np.zeros(12), WEIGHT])).fit(TRAIN)
    with pytest.raises(ValueError, match=rf"expected logits of shape \(200, 5\).* got {re.escape(str(shape))}"):
        labels(TRAIN, logits=np.zeros(shape))


def test_features_are_a_list() -> None:
    with pytest.raises(ValueError, match=r"features must be a list of arrays, .* got ndarray: \[x\]"):
        Detector(WEIGHT).fit(TRAIN, features=TRAIN)  # type: ignore[arg-type]


def test_labels_are_numbers_of_classes() -> None:
    with pytest.raises(ValueError, match="classes from 0 to 4, numbers of rows of weight, got 'cat', 'cat', 'cat'"):
        Detector(WEIGHT).fit(TRAIN, labels=["cat"] * 200)
    numbers = np.arange(200) % 5
    expected = Detector(WEIGHT).fit(TRAIN, labels=numbers).score(TRAIN)
    assert (Detector(WEIGHT).fit(TRAIN, labels=numbers.astype(object)).score(TRAIN) == expected).all()


def test_a_head_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match=r"one entry per class, 5, the rows of weight, got shape \(3,\)$"):
        Detector(np.ones((5, 12)), np.zeros(3))
    with pytest.raises(ValueError, match=r"12, the rows of weight, got shape \(5,\): pass weight\.T"):
        Detector(np.ones((12, 5)), np.zeros(5))
    with pytest.raises(ValueError, match="2-D"):
        Detector(np.ones(12))
    with pytest.raises(ValueError, match=r"embedding_scale must be one of .* got 'long'"):
        Detector(np.ones((5, 12)), embedding_scale="long")  # type: ignore[arg-type]


def test_statistics_that_do_not_fit_are_not_merged() -> None:
    detector = fitted()
    with pytest.raises(ValueError, match="unit norm"):
        detector.merge(Correlation().update(np.ones((1, 12))))
    narrow = Correlation(unit_norm=True, n_classes=5).update(np.ones((1, 4)), [0])
    for receiver in (detector, Detector(detector.weight)):
        with pytest.raises(ValueError, match="width 12 and 4"):
            receiver.merge(narrow)
        with pytest.raises(ValueError, match="of 5 and 0 classes: make both with the same n_classes"):
            receiver.merge(Correlation(unit_norm=True).update(TRAIN))
    deep = Correlation((12, 3), unit_norm=True, n_classes=5).update(np.ones((1, 15)), [0])
    with pytest.raises(ValueError, match=r"width 12 and 12 \+ 3"):
        detector.merge(deep)
    with pytest.raises(ValueError, match="features of earlier layers need embedding_scale=\"auto\", got 'paper'"):
        Detector(WEIGHT, embedding_scale="paper").merge(deep)
    assert (detector.score(TRAIN) == fitted().score(TRAIN)).all()


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
    for version in ("4", "9"):
        save_file(load_file(whole), path, metadata | {"version": version, "written_by": "pnml 0.1"})
        with pytest.raises(
            ValueError, match=rf"format {version}, written by pnml 0\.1; .* reads format 5: make it again"
        ):
            Detector.load(path)
    with pytest.raises(FileNotFoundError):
        Detector.load(tmp_path / "nowhere.safetensors")


@pytest.mark.parametrize("scale", ["paper", "natural"])
def test_too_few_rows_for_the_leverage_of_the_paper_are_announced(scale: Any) -> None:
    rows = np.random.default_rng(0).normal(size=(5, 8))
    with pytest.warns(FewRowsWarning, match=r"5 training rows for 8 features .* take embedding_scale=\"auto\""):
        Detector(np.eye(8), embedding_scale=scale).fit(rows).score(rows)


def test_few_rows_are_no_reason_for_a_warning_with_auto() -> None:
    rows = np.random.default_rng(0).normal(size=(5, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewRowsWarning)
        Detector(np.eye(8)).fit(rows).score(rows)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bias_that_is_not_finite_is_named(bad: float) -> None:
    with pytest.raises(ValueError, match=f"bias holds {bad}: every value must be finite"):
        Detector(WEIGHT, np.array([0.0, bad, 0.0, 0.0, 0.0]))
