"""Float32 is chosen once, in the fit, where it is precise enough: a search for embeddings and heads that break this."""

from __future__ import annotations

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings, target
from hypothesis import strategies as st
from scipy.special import softmax

from pnml import Detector
from pnml.core.scaling import EMBEDDING_SCALES

from .strategies import Matrix, home, seeds

WORST = 0.01  # the share by which no regret may be off
NOTHING = 1e-6  # nats, below which nobody asks
FRESH = 30
thorough = settings(max_examples=60, deadline=None, derandomize=True, database=None)
KINDS = ["plain", "layer norm", "offset", "ReLU", "dead", "nearly repeated"]


@st.composite
def layers(draw: st.DrawFn, labels: Matrix, rng: np.random.Generator) -> Matrix:
    """Features of a layer, of every kind that float32 might trip over: eigenvalues down to 1e-10 of the largest."""
    width = draw(st.sampled_from([2, 17, 64]))
    strength = np.geomspace(1, 10.0 ** -draw(st.integers(0, 5)), width)
    centres = draw(st.sampled_from([0.0, 0.3, 3.0])) * rng.normal(size=(labels.max() + 1, width)) * strength
    rows = centres[labels] + rng.normal(size=(len(labels), width)) * strength
    if draw(st.booleans()):
        rows = rows @ np.linalg.qr(rng.normal(size=(width, width)))[0]
    kind = draw(st.sampled_from(KINDS))
    if kind == "layer norm":
        rows -= rows.mean(axis=1, keepdims=True)
        rows /= rows.std(axis=1, keepdims=True) + 1e-5
    elif kind == "offset":
        rows += 10.0 ** draw(st.integers(0, 4)) * rng.normal(size=width)
    elif kind == "ReLU":
        rows = np.maximum(rows, 0)
    elif kind == "dead":
        rows[:, ::2] = 0
    elif kind == "nearly repeated":
        noise = rng.normal(size=rows[:, : width // 2].shape)
        rows[:, : width // 2] = rows[:, width - width // 2 :] * (1 + 10.0 ** -draw(st.integers(1, 8)) * noise)
    return (rows * draw(st.sampled_from([1.0, 1e-10, 1e10]))).astype(np.float32)


@st.composite
def problems(draw: st.DrawFn, scales: tuple[Any, ...] = EMBEDDING_SCALES) -> tuple[Detector, list[Matrix]]:
    """A detector, and rows like its training rows, shifted, scaled, and random ones."""
    rng = np.random.default_rng(draw(seeds))
    classes, n = draw(st.sampled_from([2, 3, 20])), draw(st.sampled_from([12, 40, 300]))
    labels = rng.integers(classes, size=n + FRESH)
    scale = draw(st.sampled_from(scales))
    count = draw(st.integers(1, 4)) if scale == "auto" else 1
    rows = [draw(layers(labels, rng)) for _ in range(count)]
    train, fresh = ([layer[part] for layer in rows] for part in (slice(FRESH, None), slice(0, FRESH)))
    train[0][np.abs(train[0]).max(axis=1) == 0] = 1
    size = float(np.abs(train[0]).max())
    weight = 10.0 ** draw(st.integers(-1, 2)) * rng.normal(size=(classes, rows[0].shape[1])) / size
    bias = 10.0 ** draw(st.integers(-1, 2)) * rng.normal(size=classes)
    offset = draw(st.sampled_from([0.0, 1e2, 1e4]))  # that all classes have in common
    head = weight + offset / size * draw(st.sampled_from([0, 1])), bias + offset
    input_layer = count > 1 and draw(st.booleans())
    detector = Detector(*head, embedding_scale=scale, input_layer=input_layer).fit(train[0], features=train[1:])
    asked = []
    for of_train, layer in zip(train, fresh, strict=True):
        shift = 10.0 ** draw(st.integers(-1, 2)) * of_train.std(axis=0) * rng.normal(size=layer.shape[1])
        random = rng.normal(size=layer.shape) * np.abs(of_train).max()
        factor = 10.0 ** draw(st.integers(-3, 3))
        asked.append(np.vstack([layer, of_train[:FRESH], layer + shift, factor * layer, random]).astype(np.float32))
    return detector, asked


def exactly(detector: Detector, rows: list[Matrix], logits: Matrix | None = None) -> Any:
    """Score in float64 the same numbers."""
    embeddings, *features = (layer.astype(np.float64) for layer in rows)
    return detector.score(embeddings, features=features, logits=logits)


@thorough
@given(problems())
def test_no_regret_in_float32_is_off_by_more_than_a_hundredth(case: tuple[Detector, list[Matrix]]) -> None:
    detector, x = case
    found, exact = detector.score(x[0], features=x[1:]), exactly(detector, x)
    assert found.dtype == np.float32
    with np.errstate(invalid="ignore"):
        target(float(np.nanmax(np.abs(found - exact) / np.maximum(exact, NOTHING))), label="relative error")
    if detector.precision == "float32":
        np.testing.assert_allclose(found, exact, rtol=WORST, atol=WORST * NOTHING)


@thorough
@given(problems())
def test_nor_is_one_of_given_logits(case: tuple[Detector, list[Matrix]]) -> None:
    """But of rows for which two classes are equally likely, as far as float32 tells."""
    detector, x = case
    with np.errstate(over="ignore"):
        logits = (x[0].astype(np.float64) @ detector.weight.T + detector.bias).astype(np.float32)
    first, second = np.sort(logits.astype(np.float64), axis=1)[:, :-3:-1].T
    apart = first - second > 1e-5 * np.abs(logits).max(axis=1)
    found = detector.score(x[0], features=x[1:], logits=logits)
    if detector.precision == "float32":
        exact = exactly(detector, x, logits)
        np.testing.assert_allclose(found[apart], exact[apart], rtol=WORST, atol=WORST * NOTHING)


@thorough
@given(problems(scales=("auto",)))
def test_products_in_float32_are_those_of_float64(case: tuple[Detector, list[Matrix]]) -> None:
    """Where the blocks of float32 rows were multiplied in float32, and where they were not."""
    detector, x = case
    rng = np.random.default_rng(0)
    some = rng.integers(len(x[0]), size=3000)
    train = [layer[some] * rng.normal(1, 0.1, size=(3000, 1)).astype(np.float32) for layer in x]
    train[0][np.abs(train[0]).max(axis=1) == 0] = 1
    options: dict[str, Any] = {"input_layer": detector.input_layer}
    single = Detector(detector.weight, detector.bias, **options).fit(train[0], features=train[1:])
    labels = single.predict(train[0])
    wide = [layer.astype(np.float64) for layer in train]
    double = Detector(detector.weight, detector.bias, **options).fit(wide[0], features=wide[1:], labels=labels)
    for number, one in enumerate(single.correlation._single or []):
        expected = double.correlation.block_matrix(number)
        moved = np.abs(single.correlation.block_matrix(number) - expected).max()
        assert moved <= (1e-5 if one else 1e-7) * np.abs(expected).max()


def ordinary(seed: int = 0, **options: Any) -> tuple[Detector, Matrix]:
    rng = np.random.default_rng(seed)
    rows = np.maximum(rng.normal(0.3, 1, size=(500, 40)), 0) * np.geomspace(1, 0.01, 40)
    rows = rows.astype(np.float32)
    return Detector(rng.normal(size=(5, 40)), rng.normal(size=5), **options).fit(rows[100:]), rows[:100]


@pytest.mark.parametrize("scale", EMBEDDING_SCALES)
def test_ordinary_rows_are_scored_in_float32(scale: Any) -> None:
    detector, x = ordinary(embedding_scale=scale)
    assert detector.precision == "float32"
    np.testing.assert_allclose(detector.score(x), exactly(detector, [x]), rtol=1e-4)


def test_products_in_float32_of_ordinary_rows_move_no_regret() -> None:
    rng = np.random.default_rng(0)
    weight, rows = rng.normal(size=(5, 40)), np.maximum(rng.normal(0.3, 1, size=(3000, 40)), 0).astype(np.float32)
    single, double = (Detector(weight).fit(train) for train in (rows, rows.astype(np.float64)))
    assert all(single.correlation._single or [False])
    np.testing.assert_allclose(exactly(single, [rows]), exactly(double, [rows]), rtol=1e-4)


def test_nearly_dependent_features_are_scored_in_float64_and_the_log_says_so(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(3000, 20)) + 1e3
    rows[:, 0] = rows[:, 1] + 1e-4 * rng.normal(size=3000)
    rows = rows.astype(np.float32)
    with caplog.at_level("INFO", logger="pnml"):
        detector = Detector(rng.normal(size=(3, 20)), embedding_scale="paper").fit(rows)
        assert detector.precision == "float64"
    assert "scoring in float64: regrets in float32 would be off by up to" in caplog.text
    np.testing.assert_array_equal(detector.score(rows[:50]), exactly(detector, [rows[:50]]).astype(np.float32))


def test_directions_without_training_rows_are_told_in_float64() -> None:
    """The leverage of the paper is infinite there."""
    rows = np.hstack([ordinary()[1], np.zeros((100, 3), dtype=np.float32)])
    detector = Detector(np.random.default_rng(0).normal(size=(5, 43)), embedding_scale="paper").fit(rows)
    assert detector.precision == "float64"
    outside = rows + np.float32(1e-3) * np.eye(43, dtype=np.float32)[42]
    np.testing.assert_allclose(detector(outside).xtg, 1)
    assert (detector(rows).xtg < 1).all()


def test_float64_training_rows_and_questions_stay_in_float64() -> None:
    detector, x = ordinary()
    wide = Detector(detector.weight, detector.bias).fit(x.astype(np.float64))
    assert wide.precision == "float64"
    assert wide.score(x).dtype == np.float32
    assert detector.score(x.astype(np.float64)).dtype == np.float64
    assert not np.array_equal(detector.score(x), detector.score(x.astype(np.float64)).astype(np.float32))


@pytest.mark.parametrize("offset", [2.0**10, 2.0**20, -(2.0**23), 2.0**30])
@pytest.mark.parametrize("scale", EMBEDDING_SCALES)
def test_an_offset_of_the_bias_changes_no_answer(scale: Any, offset: float) -> None:
    """What all classes have in common is nothing to the softmax; numbers of few digits, to which float64 adds it."""
    rng = np.random.default_rng(0)
    weight, bias = (np.round(rng.normal(size=shape) * 1024) / 1024 for shape in ((5, 16), 5))
    train, x = (rng.normal(size=(n, 16)).astype(np.float32) for n in (300, 200))
    plain, moved = (Detector(weight, b, embedding_scale=scale).fit(train) for b in (bias, bias + offset))
    assert moved.precision == plain.precision == "float32"
    np.testing.assert_allclose(moved.score(x), exactly(plain, [x]), rtol=1e-3)
    logits = x.astype(np.float64) @ weight.T + bias
    np.testing.assert_array_equal(moved(x).prediction, logits.argmax(axis=1))
    np.testing.assert_allclose(moved(x).probabilities, softmax(logits, axis=1), rtol=1e-4)


@pytest.mark.parametrize("size_of_logits", [1.0, 40.0, 1e3])
def test_logits_of_any_size_neither_overflow_nor_vanish(size_of_logits: float) -> None:
    detector, x = ordinary(embedding_scale="natural")
    large = Detector(size_of_logits * detector.weight, embedding_scale="natural").fit(x)
    assert np.isfinite(large.score(x)).all()
    np.testing.assert_allclose(large.score(x), exactly(large, [x]), rtol=WORST, atol=1e-30)


@pytest.mark.parametrize("library", [jnp.asarray, torch.tensor])
def test_arrays_on_the_host_are_scored_by_numpy_whatever_their_library(library: Any) -> None:
    detector, x = ordinary()
    found = detector.score(library(x))
    assert isinstance(found, type(library(x)))
    # The same program on memory that may be aligned otherwise: equal to float32 rounding.
    np.testing.assert_allclose(home(found), detector.score(x), rtol=1e-4)


@pytest.mark.parametrize("scale", EMBEDDING_SCALES)
def test_half_precision_is_scored_in_float32(scale: Any) -> None:
    detector, x = ordinary(embedding_scale=scale)
    half = x.astype(np.float16)
    np.testing.assert_array_equal(detector.score(half), detector.score(half.astype(np.float32)))


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyTorch compute on its own tensors, as it does on a GPU."""
    monkeypatch.setattr("pnml.core.batch.to_compute", lambda x: x)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_on_a_device_are_scored_there(dtype: torch.dtype) -> None:
    rng = np.random.default_rng(1)
    layers = [(1 + rng.normal(size=(400, w))).astype(np.float32) for w in (20, 10, 5)]
    detector = Detector(rng.normal(size=(6, 20)), input_layer=True).fit(layers[0], features=layers[1:])
    x = [np.vstack([layer[:50], rng.normal(size=(50, layer.shape[1]))]) for layer in layers]
    expected = detector(x[0], features=x[1:])
    embeddings, *features = (torch.tensor(layer, dtype=dtype) for layer in x)
    found = detector(embeddings, features=features)
    for name in ("regret", "xtg", "pnml_probabilities", "leverage_by_layer"):
        value = getattr(found, name)
        assert isinstance(value, torch.Tensor)
        assert value.dtype == dtype
        rtol = 1e-9 if dtype == torch.float64 else 1e-3
        np.testing.assert_allclose(value, getattr(expected, name), rtol=rtol, atol=rtol / 10, err_msg=name)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("setting", ["medium", "unknown", "autocast"])
def test_products_of_less_than_float32_are_not_used(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise RuntimeError("set in two ways")

    answers: dict[str, Any] = {"medium": lambda: "medium", "unknown": refuse, "autocast": lambda: "highest"}
    monkeypatch.setattr(torch, "get_float32_matmul_precision", answers[setting])
    detector, x = ordinary()
    with torch.autocast("cpu", enabled=setting == "autocast"):
        found = detector.score(torch.tensor(x))
    np.testing.assert_allclose(found, exactly(detector, [x]), rtol=2**-22)
