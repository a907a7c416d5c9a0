"""Label noise: p with a floor, so that no certainty of the head silences what the training set has not seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import log_softmax

from oracles import NOISE, about_class_means
from pnml import Detector, regret
from pnml.backend.arrays import namespace
from pnml.core.theorem import noisy_log_softmax, regrets_of_logits

from .strategies import Matrix, home, log_probabilities, modest, seeds, xtgs

if TYPE_CHECKING:
    from pnml.core.scaling import EmbeddingScale

shares = st.floats(1e-9, 1 - 1e-9)


def noisy_softmax(logits: Any, share: float) -> Any:
    return namespace(logits).exp(noisy_log_softmax(logits, share))


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor])
def test_no_noise_leaves_the_softmax(convert: Any) -> None:
    logits = np.random.default_rng(0).normal(size=(20, 5)) * np.geomspace(1e-3, 1e4, 20)[:, None]
    found = noisy_log_softmax(convert(logits), 0.0)
    np.testing.assert_allclose(found, log_softmax(logits, axis=1), rtol=1e-12, atol=1e-15)


@modest
@given(log_probabilities(), shares)
def test_a_share_of_the_labels_might_be_any(log_p: Matrix, share: float) -> None:
    """The label passes a channel that replaces a share of what is sent, by classes that are not ruled out."""
    ruled_out = np.isneginf(log_p)
    assert (noisy_softmax(log_p, share)[ruled_out] == 0).all()
    log_p = log_p[~ruled_out]
    classes = len(log_p)
    channel = (1 - share) * np.eye(classes) + np.full((classes, classes), share / classes)
    found = noisy_softmax(log_p + 5, share)
    np.testing.assert_allclose(found, channel @ np.exp(log_p), rtol=1e-12)
    assert found.sum() == pytest.approx(1, rel=1e-12)
    assert (found >= share / classes * (1 - 1e-12)).all()


@modest
@given(log_probabilities(), shares, xtgs)
def test_regret_from_noisy_probabilities_is_that_of_the_theorem(log_p: Matrix, share: float, t: float) -> None:
    """Which is held to 50 digits elsewhere."""
    p = noisy_softmax(log_p, share)  # classes that are ruled out have none of the noise
    for convert in (np.asarray, torch.tensor):  # the first in a shorter way
        found = regrets_of_logits(convert(log_p[None] - 7), convert(np.array([t])), share, ruled_out=-1e30)
        np.testing.assert_allclose(found, regret(p[None], np.array([t])), rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize("convert", [np.asarray, torch.tensor, jnp.asarray, array_api_strict.asarray])
def test_arrays_of_any_library_come_out_as_they_went_in(convert: Any) -> None:
    logits = convert(np.log(np.array([[0.9, 0.1], [0.5, 0.5]], dtype=np.float32)))
    found = noisy_softmax(logits, 0.5)
    assert isinstance(found, type(logits))
    assert found.dtype == logits.dtype
    np.testing.assert_allclose(home(found), [[0.7, 0.3], [0.5, 0.5]], rtol=1e-6)


def certain_problem(seed: int, classes: int, sureness: float) -> tuple[Detector, Matrix, Matrix]:
    """Return a detector, its training rows, and rows whose class it is certain of.

    All training rows but one are without their last feature, by which the head is ``sureness`` times as sure.
    """
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(classes, 9))
    train = 4 * weight[rng.integers(classes, size=300)] + rng.normal(size=(300, 9))
    last = np.eye(9)[8]
    train = np.vstack([train * (1 - last), last])
    weight[:, 8] = sureness * np.eye(classes)[0]
    x = rng.normal(size=(20, 9)) * (1 - last)
    x = x / np.linalg.norm(x, axis=1, keepdims=True) + np.geomspace(0.5, 50, 20)[:, None] * last
    return Detector(weight).fit(train), train, x


@modest
@given(seeds, st.integers(2, 20), st.sampled_from([1e3, 1e6]))
def test_certainty_does_not_silence_leverage(seed: int, classes: int, sureness: float) -> None:
    detector, train, x = certain_problem(seed, classes, sureness)
    at = detector.embedding_length, detector.bias * detector.bias_scale
    h = about_class_means(detector.weight, detector.bias, [train], [x], at=at)["leverage_by_layer"].sum(axis=1)
    t, other = h / (1 + h), NOISE / classes
    sure = 1 - (classes - 1) * other
    genies = [p / (p + p**t * (1 - p)) for p in (sure, other)]
    found = detector.score(x)
    silenced = Detector(detector.embedding_length * detector.weight, embedding_scale="paper").fit(train)
    np.testing.assert_allclose(found, np.log(genies[0] + (classes - 1) * genies[1]), rtol=1e-6)
    assert (np.argsort(found) == np.argsort(h)).all()
    assert (silenced.score(x) < 1e-20).all()


def test_only_auto_assumes_label_noise() -> None:
    rows = np.random.default_rng(0).normal(size=(50, 2))
    noises: dict[EmbeddingScale, float] = {"auto": NOISE, "paper": 0.0, "natural": 0.0}
    for scale, noise in noises.items():
        assert Detector(np.eye(2), embedding_scale=scale).fit(rows).label_noise == noise
