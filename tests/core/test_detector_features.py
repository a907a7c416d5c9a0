"""The detector with features of earlier layers: fitted in parts, merged, stored, left out, and refused by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import spearmanr

from oracles import about_class_means
from pnml import Correlation, Detector
from pnml.core.rows import join_layers

from .strategies import Matrix, home, modest

if TYPE_CHECKING:
    from pathlib import Path

CLASSES, WIDTHS = 5, (12, 7, 4)
WEIGHT = np.random.default_rng(0).normal(size=(CLASSES, 12))


def network(seed: int, n: int = 200) -> list[Matrix]:
    rng, centres = np.random.default_rng(seed), np.random.default_rng(99)
    labels = rng.integers(CLASSES, size=n)
    return [centres.normal(size=(CLASSES, w))[labels] + 1 + 0.5 * rng.normal(size=(n, w)) for w in WIDTHS]


TRAIN, FRESH = network(0), network(1, 50)


def fitted(rows: list[Matrix] | None = None, **kwargs: Any) -> Detector:
    rows = TRAIN if rows is None else rows
    return Detector(WEIGHT).fit(rows[0], features=rows[1:], **kwargs)


def scores(detector: Detector, rows: list[Matrix] | None = None, **kwargs: Any) -> Any:
    rows = FRESH if rows is None else rows
    return detector.score(rows[0], features=rows[1:], **kwargs)


@modest
@given(st.lists(st.integers(0, 200), max_size=4), st.booleans())
def test_fit_in_parts_and_merged_is_fit_at_once(cuts: list[int], labelled: bool) -> None:  # noqa: FBT001
    labels = np.random.default_rng(5).integers(CLASSES, size=200) if labelled else (TRAIN[0] @ WEIGHT.T).argmax(axis=1)
    whole = fitted(labels=labels if labelled else None)
    parts, merged = Detector(WEIGHT), Detector(WEIGHT)
    for part in np.split(np.arange(200), sorted(cuts)):
        embeddings, *features = (layer[part] for layer in TRAIN)
        parts.partial_fit(embeddings, features=features, labels=labels[part] if labelled else None)
        statistic = Correlation(WIDTHS, unit_norm=True, n_classes=CLASSES)
        merged.merge(statistic.update(np.hstack([embeddings, *features]), labels[part]))
    assert parts.correlation.count == merged.correlation.count == 200
    assert parts.feature_widths == merged.feature_widths == (7, 4)
    np.testing.assert_allclose(scores(parts), scores(whole), rtol=1e-7)
    np.testing.assert_allclose(scores(merged), scores(whole), rtol=1e-7)


def test_the_shorthands_give_the_fields_of_the_result() -> None:
    detector = fitted()
    held_out = network(2)
    threshold = detector.calibrate(held_out[0], features=held_out[1:], false_alarm_rate=0.1)
    np.testing.assert_array_equal(threshold.scores, np.sort(scores(detector, held_out)))
    result = detector(FRESH[0], features=FRESH[1:])
    assert (scores(detector) == result.regret).all()
    assert (detector.predict_proba(FRESH[0], features=FRESH[1:]) == result.pnml_probabilities).all()
    assert (detector.predict(FRESH[0]) == result.prediction).all()
    assert (detector.is_ood(FRESH[0], features=FRESH[1:]) == result.is_ood).all()
    np.testing.assert_allclose(result.logits, FRESH[0] @ WEIGHT.T, rtol=1e-12)
    assert (detector.n_features, detector.feature_widths) == (12, (7, 4))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("input_layer", [False, True])
def test_a_saved_detector_comes_back_to_the_bit(tmp_path: Path, dtype: Any, *, input_layer: bool) -> None:
    train, fresh = ([layer.astype(dtype) for layer in rows] for rows in (TRAIN, FRESH))
    detector = Detector(WEIGHT, input_layer=input_layer)
    detector.layer_names = ("stem", "middle")
    detector.fit(train[0], features=train[1:])
    threshold = detector.calibrate(fresh[0], features=fresh[1:])
    detector.save(tmp_path / "detector.safetensors")
    loaded = Detector.load(tmp_path / "detector.safetensors")
    assert loaded.threshold == threshold
    assert (loaded.layer_names, loaded.feature_widths) == (("stem", "middle"), (7, 4))
    assert (loaded.input_layer, loaded.precision) == (input_layer, detector.precision)
    assert detector.precision == np.dtype(dtype).name
    before, after = (one(fresh[0], features=fresh[1:]) for one in (detector, loaded))
    for name in ("regret", "xtg", "leverage_by_layer", "strangest_layer", "pnml_probabilities", "is_ood", "p_value"):
        np.testing.assert_array_equal(getattr(after, name), getattr(before, name), err_msg=name)
    np.testing.assert_array_equal(scores(loaded), scores(detector))
    left_out = [scores(one, train, leave_one_out=True) for one in (loaded, detector)]
    np.testing.assert_array_equal(*left_out)
    loaded.save(tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == (tmp_path / "detector.safetensors").read_bytes()


def test_names_of_layers_are_kept_or_made_up() -> None:
    detector = fitted()
    assert detector.layer_names == ("layer0", "layer1")
    detector.layer_names = ("stem", "middle")
    assert detector.fit(TRAIN[0], features=TRAIN[1:]).layer_names == ("stem", "middle")
    assert detector.partial_fit(FRESH[0], features=FRESH[1:]).layer_names == ("stem", "middle")
    assert detector.fit(TRAIN[0], features=TRAIN[1:2]).layer_names == ("layer0",)
    assert detector.fit(TRAIN[0]).layer_names == ()
    assert detector.feature_widths == ()


def test_names_that_do_not_fit_the_layers_are_refused() -> None:
    detector, expectation = Detector(WEIGHT), r"for features of {} layers: expected one for each layer"
    detector.layer_names = ("stem",)
    for method in (detector.fit, detector.partial_fit):
        for features in ([], TRAIN[1:]):
            with pytest.raises(
                ValueError, match=r"got 1 layer_names, \['stem'\], " + expectation.format(len(features))
            ):
                method(TRAIN[0], features=features)
    with pytest.raises(ValueError, match=r"got 1 layer_names, \['stem'\], " + expectation.format(2)):
        detector.merge(fitted().correlation)
    assert detector.partial_fit(TRAIN[0], features=TRAIN[1:2]).layer_names == ("stem",)
    for names in ((), ("stem", "middle")):
        with pytest.raises(ValueError, match=expectation.format(1)):
            detector.layer_names = names
    detector.layer_names = ("first",)
    assert detector.layer_names == ("first",)
    with pytest.raises(ValueError, match=r"\['stem', 'stem'\] has a name twice"):
        Detector(WEIGHT).layer_names = ("stem", "stem")
    wrong: Any
    for wrong in ("stem", (1, 2), ("stem", "")):
        with pytest.raises(TypeError, match=r"layer_names are .*: expected one for each layer"):
            Detector(WEIGHT).layer_names = wrong


@pytest.mark.parametrize(("n", "tolerance"), [(300, 0.05), (1000, 0.015)])
def test_leave_one_out_scores_are_close_to_those_of_detectors_that_never_saw_the_row(n: int, tolerance: float) -> None:
    """Refitted in full, but for the length; the ridges and limits of each refit are its own."""
    rows = network(7, n)
    detector = fitted(rows)
    at = detector.embedding_length, detector.bias * detector.bias_scale
    found, expected = scores(detector, rows, leave_one_out=True)[:15], []
    for i in range(15):
        others = [np.delete(layer, i, axis=0) for layer in rows]
        x = [layer[i : i + 1] for layer in rows]
        expected.append(about_class_means(WEIGHT, detector.bias, others, x, at=at)["regret"][0])
    off = np.abs(found / np.array(expected) - 1)
    assert np.median(off) < tolerance
    assert spearmanr(found, expected).statistic > 0.98
    assert (found > scores(detector, rows)[:15]).all()


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor, jnp.asarray])
@pytest.mark.parametrize("other", [np.asarray, torch.tensor, jnp.asarray])
def test_layers_of_any_libraries_are_joined(convert: Any, other: Any) -> None:
    single = [[layer.astype(np.float32) for layer in rows] for rows in (TRAIN, FRESH)]
    expected = scores(fitted(single[0]), single[1])
    train, fresh = ([convert(rows[0]), other(rows[1]), convert(rows[2])] for rows in single)
    found = scores(fitted(train), fresh)
    assert isinstance(found, type(convert(np.zeros(1, dtype=np.float32))))
    np.testing.assert_allclose(home(found), expected, rtol=2e-2)


def test_joined_rows_have_the_widest_precision() -> None:
    half, single, double = (np.ones((2, 3), dtype=dtype) for dtype in (np.float16, np.float32, np.float64))
    assert join_layers(half, [single]).dtype == np.float32
    assert join_layers(half, [half]).dtype == np.float32
    assert join_layers(single, [double]).dtype == np.float64
    assert join_layers(half, []) is half


def test_features_that_do_not_fit_are_refused_by_name() -> None:
    detector = fitted()
    embeddings, *features = FRESH
    expectation = r"fitted with features of 2 earlier layers, of widths \[7, 4\], and got "
    for given_features, words in [
        (None, "none: pass features="),
        ([], "none: pass features="),
        (features[:1], r"features of widths \[7\]"),
        (features[::-1], r"features of widths \[4, 7\]"),
        ([*features, embeddings], r"features of widths \[7, 4, 12\]"),
    ]:
        for method in (detector, detector.score, detector.partial_fit, detector.calibrate, detector.predict_proba):
            with pytest.raises(ValueError, match=expectation + words):
                method(embeddings, features=given_features)
    with pytest.raises(ValueError, match=r"features\[1\] has 49 rows, where there are 50 embeddings"):
        detector.score(embeddings, features=[features[0], features[1][1:]])
    with pytest.raises(ValueError, match=r"features\[1\] has 49 rows, where there are 50 embeddings"):
        Detector(WEIGHT).fit(embeddings, features=[features[0], features[1][1:]])
    with pytest.raises(ValueError, match=r"features\[1\]: expected a 2-D batch .* got shape \(50,\)$"):
        detector.score(embeddings, features=[features[0], features[1][:, 0]])
    with pytest.raises(
        ValueError, match=r"features\[0\]: .* got shape \(50, 7, 1, 1\); pool pixels or tokens to means"
    ):
        detector.score(embeddings, features=[features[0][:, :, None, None], features[1]])
    for method in (detector.fit, detector.score):
        with pytest.raises(
            ValueError, match=r"features must be a list .* got dict: list\(x.values\(\)\), in the order"
        ):
            method(embeddings, features=dict(enumerate(features)))  # type: ignore[arg-type]
    assert detector.correlation == fitted().correlation


def test_features_are_not_for_detectors_without_them() -> None:
    for detector in (Detector(WEIGHT).fit(TRAIN[0]), Detector(WEIGHT, embedding_scale="paper").fit(TRAIN[0])):
        for method in (detector.score, detector.partial_fit):
            with pytest.raises(
                ValueError, match=r"fitted with embeddings alone, and got features .* leave features out"
            ):
                method(FRESH[0], features=FRESH[1:])
    for scale in ("paper", "natural"):
        with pytest.raises(ValueError, match=f"need embedding_scale=\"auto\", got '{scale}'"):
            Detector(WEIGHT, embedding_scale=scale).fit(TRAIN[0], features=TRAIN[1:])
    with pytest.raises(ValueError, match="not fitted: call fit"):
        scores(Detector(WEIGHT))


def test_values_that_are_not_finite_are_named_and_change_nothing() -> None:
    detector = fitted()
    detector.calibrate(FRESH[0], features=FRESH[1:])
    before = scores(detector)
    bad = [layer.copy() for layer in FRESH]
    bad[1][11, 2] = np.nan
    for method in (detector.calibrate, detector.partial_fit, detector.fit):
        with pytest.raises(ValueError, match=r"row 11 holds nan in column 2 of features\[0\]: every"):
            method(bad[0], features=bad[1:])
    for rows in (bad, [layer.astype(np.float32) for layer in bad]):
        result = detector(rows[0], features=rows[1:])
        assert np.flatnonzero(np.isnan(result.regret)).tolist() == [11]
        assert result.is_ood is not None
        assert result.is_ood[11], "flagged where it cannot be scored"
    assert detector.threshold is not None
    np.testing.assert_array_equal(scores(detector), before)


def test_a_bad_first_batch_does_not_decide_which_layers_there_are() -> None:
    detector = Detector(WEIGHT)
    with pytest.raises(ValueError, match="row 0 holds nan"):
        detector.partial_fit(TRAIN[0], features=[np.full((200, 9), np.nan)])
    detector.partial_fit(TRAIN[0], features=TRAIN[1:])
    assert detector.layer_names == ("layer0", "layer1")
    np.testing.assert_array_equal(scores(detector), scores(fitted()))


def test_labels_that_are_none_are_refused() -> None:
    for labels, message in [(np.zeros(199), "one class for each of 200 rows"), (np.full(200, 5), "from 0 to 4, got 5")]:
        with pytest.raises(ValueError, match=message):
            fitted(labels=labels)


def test_overwritten_features_do_no_harm_to_a_result() -> None:
    """Layers are joined into rows of their own."""
    features = [layer.copy() for layer in FRESH[1:]]
    result = fitted()(FRESH[0], features=features)
    features[0][:] = 0
    np.testing.assert_array_equal(result.leverage_by_layer, fitted()(FRESH[0], features=FRESH[1:]).leverage_by_layer)
