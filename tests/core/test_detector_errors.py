"""What a detector refuses, and in which words."""

from __future__ import annotations

import json
import re
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

from oracles import NOISE, balanced_head, by_pseudo_inverse
from pnml import Correlation, Detector
from pnml.backend.state import save_state
from pnml.core.detector import FewRowsWarning
from pnml.core.multilabel import MultiLabelDetector
from pnml.core.sample import RowSample

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
    save_file(load_file(whole), path, metadata | {"version": "5", "written_by": "pnml 9.0"})
    with pytest.raises(ValueError, match=r"format 5, written by pnml 9\.0; .* reads up to format 4: pip install -U"):
        Detector.load(path)
    arrays = {name: array for name, array in load_file(whole).items() if not name.startswith("left_out.")}
    save_file(arrays, path, {key: value for key, value in metadata.items() if key != "digest"} | {"version": "2"})
    with pytest.raises(ValueError, match="format 2, which no release wrote: fit the detector again"):
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


def older(detector: Detector, folder: Path, *lacking: str) -> Detector:
    """Load the detector from a file that says nothing about what older versions did not know."""
    detector.save(folder / "detector.safetensors")
    with safe_open(folder / "detector.safetensors", "np") as file:
        metadata = file.metadata()
    about = json.loads(metadata["info"])
    for name in lacking:
        del about[name]
    arrays = load_file(folder / "detector.safetensors")
    save_state(folder / "older.safetensors", metadata["kind"], 2, arrays, about)
    return Detector.load(folder / "older.safetensors")


def test_files_from_before_there_were_tasks_are_of_classes(tmp_path: Path) -> None:
    older(Detector(WEIGHT).fit(TRAIN), tmp_path, "task")
    assert type(MultiLabelDetector.load(tmp_path / "older.safetensors")) is Detector


def test_files_from_before_the_bias_shrank_along_score_as_they_did(tmp_path: Path) -> None:
    """Their length was solved for with the bias as it is."""
    detector = Detector(WEIGHT, np.arange(5.0)).fit(TRAIN)
    loaded = older(detector, tmp_path, "bias_scale", "label_noise")
    assert loaded.embedding_length == detector.embedding_length
    np.testing.assert_array_equal(loaded.scaled_head[1], np.arange(5.0))


def first_version(folder: Path, *, lacking: tuple[str, ...] = ()) -> tuple[Path, tuple[float, Matrix]]:
    """Write a file of the first version, whose leverage was that of all rows as one; give it and its scaled head."""
    bias = np.arange(5.0)
    length, scaled = balanced_head(TRAIN, WEIGHT, bias)
    units = TRAIN / np.linalg.norm(TRAIN, axis=1, keepdims=True)
    eigenvalues, eigenvectors = np.linalg.eigh(units.T @ units)
    sample = RowSample.of(TRAIN)
    sample.by_direction = False
    arrays = {"weight": WEIGHT, "bias": bias, "eigenvalues": eigenvalues[::-1], "eigenvectors": eigenvectors[:, ::-1]}
    info = {
        "count": len(TRAIN),
        "left_out": 0,
        "norm_sum": float(np.linalg.norm(TRAIN, axis=1).sum()),
        "embedding_scale": "auto",
        "embedding_length": length,
        "bias_scale": float(scaled[1] / bias[1]),
        "label_noise": NOISE,
        "head_digest": Detector(WEIGHT, bias).head_digest,
        "threshold": None,
    }
    path = folder / "first.safetensors"
    save_state(path, "pnml.detector", 1, arrays | sample.arrays(), {k: v for k, v in info.items() if k not in lacking})
    return path, (length, scaled)


def test_files_of_the_first_version_score_as_they_did(tmp_path: Path) -> None:
    """By total leverage; also when saved anew or left out; more rows are refused, and a new fit is of the new form."""
    path, at = first_version(tmp_path)
    loaded = Detector.load(path)
    x = np.vstack([TRAIN, np.random.default_rng(2).normal(size=(50, 12))])
    assert (loaded.geometry, loaded.layer_names, loaded.embedding_scale) == (None, (), "auto")
    expected = by_pseudo_inverse(WEIGHT, loaded.bias, TRAIN, x, at=at)
    loaded.save(tmp_path / "again.safetensors")
    for one in (loaded, Detector.load(tmp_path / "again.safetensors")):
        for name in ("regret", "xtg", "pnml_probabilities", "prediction"):
            np.testing.assert_allclose(getattr(one(x), name), expected[name], rtol=1e-9, err_msg=name)
        np.testing.assert_allclose(one(x).leverage_by_layer[:, 0], expected["xtg"] / (1 - expected["xtg"]), rtol=1e-8)
        np.testing.assert_allclose(one.score(x.astype(np.float32)), expected["regret"], rtol=0.01)
    left_out = [
        by_pseudo_inverse(WEIGHT, loaded.bias, np.delete(TRAIN, i, axis=0), TRAIN[i : i + 1], at=at)["regret"][0]
        for i in range(20)
    ]
    np.testing.assert_allclose(loaded.score(TRAIN[:20], leave_one_out=True), left_out, rtol=1e-9)
    more = Detector.load(path).partial_fit(x[200:])
    assert more.correlation.count == 250
    with pytest.raises(ValueError, match=r"merged with that of an older file\. Fit on the rows again"):
        more.score(x)
    with pytest.raises(ValueError, match="cannot merge Correlations of 0 and 5 classes"):
        loaded.merge(fitted().correlation)
    new = Detector(WEIGHT, loaded.bias).fit(TRAIN)
    np.testing.assert_array_equal(loaded.fit(TRAIN).score(x), new.score(x))
    assert not np.allclose(new.score(x), expected["regret"], rtol=1e-3)


def test_files_from_before_label_noise_score_as_they_did(tmp_path: Path) -> None:
    """As of norm 1 with a head of their length, which "paper" believes entirely; also when saved anew."""
    path, (length, scaled) = first_version(tmp_path, lacking=("label_noise",))
    loaded = Detector.load(path)
    expected = by_pseudo_inverse(length * WEIGHT, scaled, TRAIN, TRAIN, "paper")["regret"]
    for one in (loaded, older(loaded, tmp_path)):
        assert (one.embedding_scale, one.label_noise) == ("auto", 0.0)
        np.testing.assert_allclose(one.score(TRAIN), expected, rtol=1e-9)
