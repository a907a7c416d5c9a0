from __future__ import annotations

import json
import math
import warnings
from typing import TYPE_CHECKING, Any

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.numpy import load_file
from scipy.special import softmax

from oracles import NOISE, about_class_means, balanced_head, believed, by_pseudo_inverse
from pnml import Correlation, Detector, Result
from pnml.core.detector import ZeroEmbeddingWarning

if TYPE_CHECKING:
    from pathlib import Path

Matrix = np.ndarray[Any, Any]

SCALES = ["auto", "paper", "natural"]
LIBRARIES: dict[str, Any] = {
    "numpy": np.asarray,
    "torch": torch.tensor,
    "jax": jnp.asarray,
    "strict": array_api_strict.asarray,
}


def problem(seed: int = 0, *, rank: int = 12, count: int = 200) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    """Give weight (5, 12), bias (5,), training rows of the given rank, and rows to score, in and out of their span."""
    rng = np.random.default_rng(seed)
    mixing = np.linalg.qr(rng.normal(size=(12, 12)))[0][:rank] * np.geomspace(3, 0.1, rank)[:, None]
    train = rng.normal(size=(count, rank)) @ mixing
    seen, unseen = rng.normal(size=(20, rank)) @ mixing, rng.normal(size=(20, 12))
    return rng.normal(size=(5, 12)), rng.normal(size=5), train, np.vstack([seen, unseen])


def expected_of(detector: Detector, train: Matrix, x: Matrix) -> dict[str, Matrix]:
    """Give every field by the oracle of the detector's scale."""
    if detector.embedding_scale == "auto":
        at = detector.embedding_length, detector.bias * detector.bias_scale
        return about_class_means(detector.weight, detector.bias, [train], [x], at=at)
    return by_pseudo_inverse(detector.weight, detector.bias, train, x, detector.embedding_scale)


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("rank", [12, 7])
@pytest.mark.parametrize("count", [200, 9])
def test_every_field_is_what_its_definition_gives(scale: Any, rank: int, count: int) -> None:
    weight, bias, train, x = problem(rank=rank, count=count)
    detector = Detector(weight, bias, embedding_scale=scale).fit(train)
    length, scaled = balanced_head(train, weight, bias) if scale == "auto" else (1.0, bias)
    assert detector.embedding_length == pytest.approx(length, rel=1e-6)
    np.testing.assert_allclose(detector.bias * detector.bias_scale, scaled, rtol=1e-6)
    result, rtol = detector(x), 1e-8 if scale != "auto" else 1e-5 if min(rank, count) < 12 else 1e-6
    for name, expected in expected_of(detector, train, x).items():  # in the null space, W is known to rounding / ridge
        np.testing.assert_allclose(getattr(result, name), expected, rtol=rtol, atol=1e-12, err_msg=name)


def test_the_shorthands_give_the_fields_of_the_result() -> None:
    weight, bias, train, x = problem()
    detector = Detector(weight, bias).fit(train)
    threshold = detector.calibrate(train, leave_one_out=True)
    result = detector(x)
    assert (detector.score(x) == result.regret).all()
    assert (detector.predict_proba(x) == result.pnml_probabilities).all()
    assert (detector.predict(x) == result.prediction).all()
    assert (detector.is_ood(x) == result.is_ood).all()
    assert (threshold.p_value(result.regret) == result.p_value).all()
    assert (len(result), detector.n_classes, detector.n_features) == (40, 5, 12)
    assert repr(result).startswith(f"Result(40 samples, {detector.is_ood(x).sum()} out-of-distribution: logits, ")


def test_bias_defaults_to_zeros() -> None:
    weight, _, train, x = problem()
    assert (Detector(weight).fit(train).score(x) == Detector(weight, np.zeros(5)).fit(train).score(x)).all()


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(cuts=st.lists(st.integers(0, 200), max_size=5).map(sorted), scale=st.sampled_from(SCALES))
def test_fit_in_parts_and_merged_is_fit_at_once(cuts: list[int], scale: Any) -> None:
    weight, bias, train, x = problem()
    whole = Detector(weight, bias, embedding_scale=scale).fit(train)
    parts, merged = Detector(weight, bias, embedding_scale=scale), Detector(weight, bias, embedding_scale=scale)
    for rows in np.split(train, cuts):
        parts.partial_fit(rows)
        part = Correlation(unit_norm=scale != "natural", n_classes=5 if scale == "auto" else 0)
        merged.merge(part.update(rows, (rows @ weight.T + bias).argmax(axis=1)))
    assert parts.correlation.count == merged.correlation.count == 200
    np.testing.assert_allclose(parts.score(x), whole.score(x), rtol=1e-9)
    np.testing.assert_allclose(merged.score(x), whole.score(x), rtol=1e-9)


def test_fit_forgets_and_partial_fit_does_not() -> None:
    weight, bias, train, x = problem()
    detector = Detector(weight, bias).fit(train[:50]).fit(train)
    assert (detector.score(x) == Detector(weight, bias).fit(train).score(x)).all()
    assert detector.partial_fit(train).correlation.count == 400


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 10**6), scale=st.sampled_from(["paper", "natural"]))
def test_regret_is_bounded_falls_with_more_data_and_knows_no_axes(seed: int, scale: Any) -> None:
    """At a length that stays, as that of "auto" does not when there is more data."""
    weight, bias, train, x = problem(seed)
    half = Detector(weight, bias, embedding_scale=scale).fit(train[:100]).score(x)
    whole = Detector(weight, bias, embedding_scale=scale).fit(train).score(x)
    assert (whole >= 0).all()
    assert (half <= math.log(5)).all()
    assert (whole <= half + 1e-12).all()
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(12, 12)))[0]
    turned = Detector(weight @ rotation, bias, embedding_scale=scale).fit(train @ rotation).score(x @ rotation)
    np.testing.assert_allclose(turned, whole, rtol=1e-9)


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(seed=st.integers(0, 10**6))
def test_at_the_length_of_auto_regret_is_bounded_and_knows_no_axes(seed: int) -> None:
    weight, bias, train, x = problem(seed)
    scores = Detector(weight, bias).fit(train).score(x)
    assert (scores >= 0).all()
    assert (scores <= math.log(5)).all()
    rotation = np.linalg.qr(np.random.default_rng(seed).normal(size=(12, 12)))[0]
    turned = Detector(weight @ rotation, bias).fit(train @ rotation).score(x @ rotation)
    np.testing.assert_allclose(turned, scores, rtol=1e-5)  # the rows that set the length are kept in float32


def test_all_scales_but_natural_ignore_the_length_of_embeddings_alone() -> None:
    weight, bias, train, x = problem()
    natural = Detector(weight, bias, embedding_scale="natural").fit(train)
    assert (natural(100 * x).xtg > natural(x).xtg).all()
    for scaled in (Detector(weight, bias), Detector(weight, bias, embedding_scale="paper")):
        np.testing.assert_allclose(scaled.fit(train).score(100 * x), scaled.score(x), rtol=1e-9)


@pytest.mark.parametrize("scale", ["auto", "paper"])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("tiny", [0.0, 1e-310])
def test_an_embedding_of_norm_zero_gets_the_largest_regret_and_is_flagged(scale: Any, dtype: Any, tiny: float) -> None:
    weight, bias, train, _ = problem()
    detector = Detector(weight, bias, embedding_scale=scale).fit(train)
    detector.calibrate(train, false_alarm_rate=0.01, leave_one_out=True)
    result = detector(np.vstack([train[:1], np.full((1, 12), tiny)]).astype(dtype))
    np.testing.assert_allclose(result.regret[1], math.log(5), rtol=1e-7)
    assert result.xtg[1] == 1
    assert result.is_ood is not None
    assert result.is_ood.tolist() == [False, True]
    np.testing.assert_allclose(result.pnml_probabilities.sum(axis=1), 1, rtol=1e-6)


def test_a_natural_embedding_of_norm_zero_is_well_known() -> None:
    weight, bias, train, _ = problem()
    natural = Detector(weight, bias, embedding_scale="natural").fit(train)(np.zeros((1, 12)))
    assert natural.xtg == natural.regret == [0.0]
    np.testing.assert_allclose(natural.pnml_probabilities, softmax(bias)[None])


@pytest.mark.parametrize("scale", ["auto", "paper"])
@pytest.mark.parametrize("convert", [np.asarray, torch.tensor])
def test_training_rows_of_norm_zero_are_left_out_with_one_warning(scale: Any, convert: Any, tmp_path: Path) -> None:
    weight, bias, train, x = problem()
    plain = Detector(weight, bias, embedding_scale=scale).fit(train)
    detector = Detector(weight, bias, embedding_scale=scale)
    for rows in (np.vstack([train[:100], np.zeros((2, 12))]), np.zeros((3, 12)), train[100:]):
        detector.partial_fit(convert(rows))
    assert (detector.correlation.count, detector.correlation.left_out) == (200, 5)
    with pytest.warns(ZeroEmbeddingWarning, match="5 of 205 training rows have norm 0"):
        scores = detector.score(x)
    detector.score(x)  # does not warn again, which would be an error
    np.testing.assert_allclose(scores, plain.score(x), rtol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ZeroEmbeddingWarning)
        detector.save(tmp_path / "detector.safetensors")
    assert Detector.load(tmp_path / "detector.safetensors").left_out == 5


def test_training_rows_of_norm_zero_alone_are_no_fit() -> None:
    weight, bias, train, _ = problem()
    with pytest.raises(ValueError, match=r"not fitted.*: all 3 training rows have norm 0"):
        Detector(weight, bias).fit(np.zeros((3, 12))).score(train)


def test_given_logits_are_those_of_the_result() -> None:
    weight, bias, train, x = problem()
    logits = np.random.default_rng(1).normal(size=(40, 5))
    result = Detector(weight, bias).fit(train)(x, logits=logits)
    assert result.logits is logits
    assert (result.prediction == logits.argmax(axis=1)).all()
    np.testing.assert_allclose(result.probabilities, softmax(logits, axis=1), rtol=1e-12)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_arrays_of_any_library_come_out_as_they_went_in(library: str, dtype: str) -> None:
    weight, bias, train, x = problem()
    length, scaled = balanced_head(train, weight, bias)
    if library == "jax":
        dtype = "float32"  # all that JAX has unless told otherwise
    convert = LIBRARIES[library]
    detector = Detector(convert(weight.astype(dtype)), convert(bias.astype(dtype))).fit(convert(train.astype(dtype)))
    detector.calibrate(convert(train.astype(dtype)), leave_one_out=True)
    assert detector.embedding_length == pytest.approx(length, rel=1e-6)
    np.testing.assert_allclose(detector.bias * detector.bias_scale, scaled, rtol=1e-5)
    expected = expected_of(detector, train, x)
    rows = convert(x.astype(dtype))
    result = detector(rows)
    for name in ("logits", "prediction", "probabilities", "pnml_probabilities", "xtg", "regret", "p_value", "is_ood"):
        assert isinstance(getattr(result, name), type(rows)), name
    for name in ("logits", "probabilities", "pnml_probabilities", "xtg", "regret"):
        values = getattr(result, name)
        assert values.dtype == rows.dtype
        tolerance = 1e-3 if dtype == "float32" else 1e-6
        np.testing.assert_allclose(np.from_dlpack(values), expected[name], rtol=tolerance, atol=tolerance)
    assert np.from_dlpack(result.prediction).tolist() == expected["prediction"].tolist()


@pytest.mark.parametrize("library", ["numpy", "torch", "jax"])
def test_half_precision_embeddings_are_not_computed_with_in_half_precision(library: str) -> None:
    weight, bias, train, x = problem()
    detector = Detector(weight, bias).fit(train)
    halves = x.astype(np.float16)
    scores = detector.score(LIBRARIES[library](halves))
    assert str(scores.dtype).endswith("float32")
    np.testing.assert_allclose(np.from_dlpack(scores), detector.score(halves.astype(np.float64)), rtol=2e-5)


def test_plain_lists_and_integers_will_do() -> None:
    detector = Detector([[1, 0], [0, 1]], [0, 0], embedding_scale="paper").fit([[1, 0], [0, 1]])
    np.testing.assert_allclose(detector([[2, 0]]).xtg, [0.5])
    rows = [[1, 0], [3, 1], [0, 1], [1, 2]]
    layers = [[[1], [2], [3], [4]], [[0, 1], [1, 0], [1, 1], [2, 1]]]
    deep = Detector([[1, 0], [0, 1]]).fit(rows, features=layers, labels=[0, 0, 1, 1])
    arrays = [np.array(layer, dtype=float) for layer in layers]
    again = Detector(np.eye(2)).fit(np.array(rows, dtype=float), features=arrays, labels=np.array([0, 0, 1, 1]))
    np.testing.assert_array_equal(deep.score(rows, features=layers), again.score(rows, features=arrays))


def test_calibration_sets_the_asked_for_threshold_and_more_data_drops_it() -> None:
    weight, bias, train, x = problem()
    detector = Detector(weight, bias).fit(train[:100])
    assert not detector(x).is_calibrated
    threshold = detector.calibrate(train[100:], false_alarm_rate=0.1)
    assert threshold.value == np.sort(detector.score(train[100:]))[90]
    assert (threshold.source, threshold.count, detector.threshold) == ("held-out", 100, threshold)
    assert detector.partial_fit(train[100:]).threshold is None


@pytest.mark.parametrize("scale", ["paper", "natural"])
def test_leave_one_out_scores_are_those_of_detectors_that_never_saw_the_row(scale: Any) -> None:
    weight, bias, train, _ = problem(count=40)
    detector = Detector(weight, bias, embedding_scale=scale).fit(train)
    left_out = [
        by_pseudo_inverse(weight, bias, np.delete(train, i, axis=0), train[i : i + 1], scale)["regret"][0]
        for i in range(40)
    ]
    threshold = detector.calibrate(train, leave_one_out=True)
    np.testing.assert_allclose(threshold.scores, np.sort(left_out), rtol=1e-9)
    assert threshold.source == "leave-one-out"


@pytest.mark.parametrize("scale", ["paper", "natural"])
def test_a_row_alone_in_its_direction_is_outside_without_itself(scale: Any) -> None:
    train = np.vstack([np.eye(3)[:2], np.eye(3)[:2], np.eye(3)[2:]])
    detector = Detector(np.eye(3), embedding_scale=scale).fit(train)
    scores = detector.score(train, leave_one_out=True)
    p = believed(np.eye(3)[0], scale)
    np.testing.assert_allclose(scores.max(), np.log((1 / (2 - p)).sum()))


@pytest.mark.parametrize("scale", SCALES)
def test_a_saved_detector_scores_alike_to_the_bit_and_sums_go_on_learning(tmp_path: Path, scale: Any) -> None:
    weight, bias, train, x = problem()
    detector = Detector(weight, bias, embedding_scale=scale).fit(train[:100])
    threshold = detector.calibrate(train[100:], false_alarm_rate=0.1)
    detector.save(tmp_path / "detector.safetensors")
    loaded = Detector.load(tmp_path / "detector.safetensors")

    assert loaded.threshold == threshold
    assert loaded.threshold is not None
    assert (loaded.threshold.scores == threshold.scores).all()
    assert (loaded.embedding_scale, loaded.head_digest) == (scale, detector.head_digest)
    assert (loaded.embedding_length, loaded.bias_scale) == (detector.embedding_length, detector.bias_scale)
    assert loaded.label_noise == (NOISE if scale == "auto" else 0.0)
    assert (loaded.count, loaded.precision) == (100, detector.precision)
    np.testing.assert_allclose(loaded.mean_norm, np.linalg.norm(train[:100], axis=1).mean())
    before, after = detector(x).to_table(), loaded(x).to_table()
    assert all((before[name] == after[name]).all() for name in before)

    with pytest.raises(ValueError, match=r"save the sums before, detector\.correlation\.save\(path\)"):
        loaded.partial_fit(train[100:])
    with pytest.raises(ValueError, match="holds no sums of its training rows"):
        loaded.merge(detector.correlation)
    detector.correlation.save(tmp_path / "sums")
    sums = Correlation.load(tmp_path / "sums")
    continued = Detector(weight, bias, embedding_scale=scale).merge(sums).partial_fit(train[100:])
    once = Detector(weight, bias, embedding_scale=scale).fit(train)
    np.testing.assert_allclose(continued.score(x), once.score(x), rtol=1e-9)
    np.testing.assert_allclose(loaded.fit(train).score(x), once.score(x), rtol=1e-12)


def test_a_detector_without_threshold_is_saved_without_one(tmp_path: Path) -> None:
    weight, bias, train, _ = problem()
    Detector(weight, bias).fit(train).save(str(tmp_path / "detector.safetensors"))
    assert Detector.load(str(tmp_path / "detector.safetensors")).threshold is None


def test_head_digest_tells_heads_apart_but_not_their_dtypes() -> None:
    weight, bias, *_ = problem()
    weight, bias = weight.astype(np.float32), bias.astype(np.float32)
    digest = Detector(weight, bias).head_digest
    assert Detector(weight.astype(np.float64), bias.tolist()).head_digest == digest
    assert Detector(torch.tensor(weight), torch.tensor(bias)).head_digest == digest
    assert Detector(weight, bias + 1).head_digest != digest
    assert Detector(weight[::-1], bias).head_digest != digest


def test_the_table_has_one_column_per_quantity(tmp_path: Path) -> None:
    weight, bias, train, x = problem()
    detector = Detector(weight, bias).fit(train)
    detector.calibrate(train, leave_one_out=True)
    result = detector(torch.tensor(x))
    table = pa.table(result.to_table())
    assert table.column_names == ["prediction", "probability", "xtg", "regret", "p_value", "is_ood"]
    assert [str(kind) for kind in table.schema.types] == ["int64", *["double"] * 4, "bool"]
    assert table["regret"].to_pylist() == result.regret.tolist()
    assert table["probability"].to_pylist() == result.probabilities.max(dim=1).values.tolist()


def test_a_result_says_what_it_holds() -> None:
    weight, bias, train, x = problem()
    result = Detector(weight, bias).fit(train)(x)
    assert isinstance(result, Result)
    assert repr(result) == (
        "Result(40 samples: logits, prediction, probabilities, pnml_probabilities, xtg, leverage_by_layer, "
        "strangest_layer, regret)"
    )


@pytest.mark.parametrize("scale", SCALES)
def test_the_file_is_plain_safetensors_with_readable_metadata(tmp_path: Path, scale: Any) -> None:
    weight, bias, train, _ = problem()
    detector = Detector(weight, bias, embedding_scale=scale).fit(train)
    detector.save(tmp_path / "detector.safetensors")
    kept = load_file(tmp_path / "detector.safetensors")
    geometry = {"eigenvalues", "eigenvectors"}
    if scale == "auto":
        geometry = {f"embedding.{name}" for name in ("mean", "whitening", "background", "centres", "row_shares")}
        geometry |= {"profile.centre", "profile.spread", "profile.mixing", "profile.push", "spectrum"}
    assert set(kept) == {"bias", "weight", "sample_keys"} | geometry, "and no training rows"
    with safe_open(tmp_path / "detector.safetensors", framework="numpy") as file:
        info = json.loads(file.metadata()["info"])
    assert (info["count"], info["embedding_scale"], info["head_digest"]) == (200, scale, detector.head_digest)
    assert info["length"] == detector.embedding_length
    assert info["bias_scale"] == detector.bias_scale
    assert info["label_noise"] == (NOISE if scale == "auto" else 0.0)
    assert [path.name for path in tmp_path.iterdir()] == ["detector.safetensors"]


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor])
@pytest.mark.parametrize("field", ["logits", "prediction", "probabilities", "pnml_probabilities", "leverage_by_layer"])
def test_fields_of_overwritten_embeddings_raise_instead_of_describing_others(convert: Any, field: str) -> None:
    weight, bias, train, x = problem()
    detector = Detector(weight, bias).fit(train)
    detector.calibrate(train, leave_one_out=True)
    buffer = convert(x)
    result, expected = detector(buffer), detector(x)
    buffer[:] = convert(x[::-1].copy())
    with pytest.raises(RuntimeError, match="overwritten since they were scored"):
        getattr(result, field)
    np.testing.assert_array_equal(result.regret, expected.regret)
    np.testing.assert_array_equal(result.is_ood, expected.is_ood)
    np.testing.assert_array_equal(result.p_value, expected.p_value)


def test_tensors_on_a_device_are_compared_by_their_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pnml.core.batch.to_compute", lambda x: x)
    weight, bias, train, x = problem()
    detector, buffer = Detector(weight, bias).fit(train), torch.tensor(x)
    assert detector(buffer).leverage_by_layer.shape == (40, 1)
    result = detector(buffer)
    buffer.zero_()
    with pytest.raises(RuntimeError, match="overwritten"):
        _ = result.leverage_by_layer
    with torch.inference_mode():
        assert detector(torch.tensor(x)).leverage_by_layer.shape == (40, 1)


def test_repr_says_what_it_is_for_and_how_far_it_is() -> None:
    weight, bias, train, _ = problem()
    detector = Detector(weight, bias)
    assert repr(detector) == "Detector(12 features to 5 classes, scale auto, not fitted)"
    detector.fit(train, features=[train[:, :3]])
    assert repr(detector).endswith("layers ['layer0'], fitted on 200 samples, not calibrated)")
    detector.calibrate(train, features=[train[:, :3]], leave_one_out=True)
    assert f"calibrated: {detector.threshold}" in repr(detector)
