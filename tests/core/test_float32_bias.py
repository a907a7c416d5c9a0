"""A search for biases and weights that break the bound on the error of float32, and what classes have in common."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, target
from hypothesis import strategies as st
from scipy.special import softmax

from pnml import Detector
from pnml.core.float32_scorer import LARGEST_ERROR, Float32Scorer

from .strategies import seeds

Matrix = np.ndarray[Any, Any]
EPS = 2.0**-23  # of float32
SCALES = ["auto", "paper", "natural"]


def short_numbers(rng: np.random.Generator, *shape: int) -> Matrix:
    """Give numbers of few digits, to which float64 adds large ones without rounding."""
    return np.round(rng.normal(size=shape) * 1024) / 1024


@pytest.mark.parametrize("offset", [2.0**10, 2.0**20, 2.0**23, -(2.0**23), 2.0**27, 2.0**30])
@pytest.mark.parametrize("scale", SCALES)
def test_an_offset_of_the_bias_changes_no_answer(scale: Any, offset: float) -> None:
    rng = np.random.default_rng(0)
    weight, bias, train = short_numbers(rng, 5, 16), short_numbers(rng, 5), rng.normal(size=(300, 16))
    x = rng.normal(size=(200, 16)).astype(np.float32)
    plain, moved = (Detector(weight, b, embedding_scale=scale).fit(train) for b in (bias, bias + offset))
    expected, found = plain(x.astype(np.float64)), moved(x)
    np.testing.assert_allclose(found.regret, expected.regret, rtol=LARGEST_ERROR)
    logits = x.astype(np.float64) @ weight.T + bias
    np.testing.assert_array_equal(found.prediction, logits.argmax(axis=1))
    np.testing.assert_allclose(found.probabilities, softmax(logits, axis=1), rtol=1e-4)


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(
    seeds,
    st.sampled_from(SCALES),
    st.floats(-3, 6),
    st.floats(-3, 3),
    st.sampled_from([0.0, 1e3, 1e6, 1e7, 1e8]),
)
def test_no_bias_breaks_the_bound_of_trusted_rows(
    seed: int, scale: Any, bias_decade: float, weight_decade: float, offset: float
) -> None:
    rng = np.random.default_rng(seed)
    n_classes = int(rng.choice([2, 3, 12]))
    train = rng.normal(rng.choice([0.0, 1.0]), 1, size=(160, 12)) * np.geomspace(1, 0.01, 12)
    bias = rng.normal(size=n_classes) * 10.0**bias_decade + offset
    weight = rng.normal(size=(n_classes, 12)) * 10.0**weight_decade
    detector = Detector(weight, bias, embedding_scale=scale).fit(train)
    x = np.vstack([train[:40], rng.normal(size=(40, 12)), 1e3 * train[:20], 1e-3 * train[:20]]).astype(np.float32)
    exact = detector.exact_scorer.regret(x, EPS)
    found, trusted = Float32Scorer(detector.model).score(x, EPS)
    error = np.abs(found - exact)[trusted] / exact[trusted]
    target(float(error.max(initial=0.0)), label="relative error of a trusted regret")
    assert (error <= LARGEST_ERROR).all()


@pytest.mark.parametrize("scale", SCALES)
def test_biases_that_float32_cannot_add_are_not_trusted(scale: Any) -> None:
    rng = np.random.default_rng(1)
    bias = np.array([0.0, 2e6, 2e6 + 0.5])  # what two classes have in common is not common to all
    detector = Detector(rng.normal(size=(3, 8)), bias, embedding_scale=scale).fit(rng.normal(size=(100, 8)))
    x = rng.normal(size=(50, 8)).astype(np.float32)
    exact = detector.exact_scorer.regret(x, EPS)
    found, trusted = Float32Scorer(detector.model).score(x, EPS)
    assert (np.abs(found - exact)[trusted] <= LARGEST_ERROR * exact[trusted]).all()
    np.testing.assert_allclose(detector.score(x), exact, rtol=LARGEST_ERROR, atol=1e-37)
