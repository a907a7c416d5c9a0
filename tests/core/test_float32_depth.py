"""Regrets of several layers in float32: within their bound, or computed in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pnml import Detector
from pnml.core.float32_scorer import LARGEST_ERROR, Float32Scorer

from .strategies import Matrix, seeds

EPS = 2.0**-23  # of float32
thorough = settings(max_examples=60, deadline=None, derandomize=True, database=None)


@st.composite
def problems(draw: st.DrawFn) -> tuple[Detector, list[Matrix]]:
    """A detector and float32 rows of one to four layers, of every kind that float32 might trip over."""
    rng = np.random.default_rng(draw(seeds))
    classes, n = draw(st.integers(2, 12)), draw(st.sampled_from([5, 40, 300]))
    labels = rng.integers(classes, size=n + 40)
    layers = []
    for _ in range(draw(st.integers(1, 4))):
        width = draw(st.sampled_from([1, 2, 17, 64, 90]))
        mixed = rng.normal(size=(width, width)) if draw(st.booleans()) else np.eye(width)
        strength = np.geomspace(1, 10.0 ** -draw(st.integers(0, 6)), width)
        centres = draw(st.sampled_from([0.0, 0.3, 10.0])) * rng.normal(size=(classes, width))
        rows = centres[labels] + rng.normal(draw(st.sampled_from([0.0, 30.0])), 1, size=(n + 40, width)) * strength
        rows = rows @ mixed
        repeated = draw(st.sampled_from([0, 0, width // 2]))
        rows[:, :repeated] = rows[:, width - repeated :] * (1 + 10.0 ** -draw(st.integers(1, 8)) * rng.normal())
        if draw(st.booleans()):
            rows = np.maximum(rows, 0)
        if draw(st.integers(0, 9)) == 0:
            rows[:] = draw(st.sampled_from([0.0, 1.0]))
        layers.append((rows * draw(st.sampled_from([1.0, 1.0, 1e-20, 1e20]))).astype(np.float32))
    train, fresh = ([layer[part] for layer in layers] for part in (slice(40, None), slice(0, 40)))
    train[0][np.abs(train[0]).max(axis=1) == 0] = 1
    scales = [max(float(np.abs(layer).max()), 1e-30) for layer in layers]
    odd = [
        np.vstack([rng.normal(size=(10, layer.shape[1])) * scale, np.ones((1, layer.shape[1])), 0 * layer[:1]])
        for layer, scale in zip(layers, scales, strict=True)
    ]
    weight = rng.normal(size=(classes, layers[0].shape[1])) * draw(st.sampled_from([0.1, 1.0, 10.0])) / scales[0]
    detector = Detector(weight, rng.normal(size=classes)).fit(train[0], features=train[1:])
    x = [np.vstack(parts).astype(np.float32) for parts in zip(fresh, [t[:10] for t in train], odd, strict=True)]
    return detector, x


@thorough
@given(problems())
def test_trusted_regrets_are_within_the_bound(case: tuple[Detector, list[Matrix]]) -> None:
    detector, x = case
    rows = np.hstack(x)
    exact = np.asarray(detector._fitted_scorers[0].regret(rows, EPS))
    found, trusted = Float32Scorer(detector.model).score(rows, EPS)
    assert found.dtype == np.float32
    assert np.isfinite(exact).all()
    assert (np.abs(found - exact)[trusted] <= LARGEST_ERROR * exact[trusted]).all()


@thorough
@given(problems(), st.sampled_from([np.asarray, torch.tensor]))
def test_scores_of_float32_rows_are_those_of_float64(case: tuple[Detector, list[Matrix]], library: Any) -> None:
    detector, x = case
    embeddings, *features = (library(layer) for layer in x)
    found = detector.score(embeddings, features=features)
    assert isinstance(found, type(embeddings))
    exact = detector.score(x[0].astype(np.float64), features=[layer.astype(np.float64) for layer in x[1:]])
    np.testing.assert_allclose(found, exact.astype(np.float32), rtol=LARGEST_ERROR, atol=1e-30)


@pytest.mark.parametrize("labelled", [False, True])
def test_ordinary_rows_are_scored_in_float32(labelled: bool) -> None:  # noqa: FBT001
    """Not all of them: a row near the limit of a layer, or between two classes, may be doubtful."""
    rng = np.random.default_rng(0)
    labels = rng.integers(5, size=3000)
    layers = [rng.normal(size=(5, w))[labels] + rng.normal(size=(3000, w)) for w in (40, 30, 20)]
    weight = rng.normal(size=(5, 40))
    train, x = [layer[1000:] for layer in layers], [layer[:1000].astype(np.float32) for layer in layers]
    given_labels = labels[1000:] if labelled else None
    detector = Detector(weight).fit(train[0], features=train[1:], labels=given_labels)
    scorer = Float32Scorer(detector.model)
    assert scorer.is_accurate
    found, trusted = scorer.score(np.hstack(x), EPS)
    assert trusted.mean() > 0.95
    exact = detector.score(x[0].astype(np.float64), features=[layer.astype(np.float64) for layer in x[1:]])
    np.testing.assert_allclose(found[trusted], exact[trusted], rtol=1e-3)


@pytest.mark.parametrize("together", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_on_a_device_are_scored_there(
    dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch, *, together: bool
) -> None:
    """Layer by layer, or by one product for all of them."""
    rng = np.random.default_rng(1)
    layers = [1 + rng.normal(size=(400, w)) for w in (20, 10, 5)]
    detector = Detector(rng.normal(size=(6, 20))).fit(layers[0], features=layers[1:])
    x = [np.vstack([layer[:50], rng.normal(size=(50, layer.shape[1]))]) for layer in layers]
    expected = detector(x[0], features=x[1:])
    monkeypatch.setattr("pnml.core.batch.to_compute", lambda x: x)
    monkeypatch.setattr("pnml.core.joined.is_remote", lambda x: together)
    embeddings, *features = (torch.tensor(layer, dtype=dtype) for layer in x)
    found = detector(embeddings, features=features)
    rtol = 1e-9 if dtype == torch.float64 else LARGEST_ERROR
    for name in ("regret", "xtg", "pnml_probabilities", "leverage_by_layer"):
        value = getattr(found, name)
        assert isinstance(value, torch.Tensor)
        assert value.dtype == dtype
        np.testing.assert_allclose(value, getattr(expected, name), rtol=rtol, atol=rtol / 10, err_msg=name)


def test_scores_have_gradients_in_every_layer() -> None:
    """Those of finite differences, for a row that is strange in all layers."""
    rng = np.random.default_rng(2)
    layers = [1 + 0.2 * rng.normal(size=(300, w)) for w in (8, 5)]
    detector = Detector(rng.normal(size=(3, 8))).fit(layers[0], features=layers[1:])
    x = [torch.tensor(rng.normal(size=(1, w)), requires_grad=True) for w in (8, 5)]
    detector.score(x[0], features=x[1:]).sum().backward()
    for number, layer in enumerate(x):
        assert layer.grad is not None
        for column in range(layer.shape[1]):
            moved = []
            for step in (1e-6, -1e-6):
                at = [tensor.detach().numpy().copy() for tensor in x]
                at[number][0, column] += step
                moved.append(detector.score(at[0], features=at[1:])[0])
            slope = (moved[0] - moved[1]) / 2e-6
            assert float(layer.grad[0, column]) == pytest.approx(slope, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("apart", [1e-2, 1e-3, 1e-4, 1e-5, 1e-6])
@pytest.mark.parametrize("layer", [0, 1])
def test_rows_that_float32_cannot_tell_apart_are_not_trusted(apart: float, layer: int) -> None:
    """One layer hardly varies: what is left after its mean is subtracted is rounding, the more the less it varies."""
    rng = np.random.default_rng(0)
    train, fresh = ([rng.normal(size=(400, width)) for width in (12, 9)] for _ in range(2))
    middle = np.asarray(rng.normal(size=train[layer].shape[1]))
    train[layer], fresh[layer] = middle + apart * train[layer], middle + 3 * apart * fresh[layer]
    weight = np.asarray(rng.normal(size=(4, 12)))
    if layer == 0:  # a head that tells these rows apart
        weight = (weight - np.outer(weight @ middle, middle) / (middle @ middle)) / apart
    detector = Detector(weight).fit(train[0], features=train[1:])
    rows = np.hstack(fresh).astype(np.float32)
    exact = np.asarray(detector._fitted_scorers[0].regret(rows, EPS))
    found, trusted = Float32Scorer(detector.model).score(rows, EPS)
    is_off = np.abs(found - exact) > LARGEST_ERROR * exact
    assert is_off.any() or apart > 1e-6
    assert not (is_off & trusted).any()
