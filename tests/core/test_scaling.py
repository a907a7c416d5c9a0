"""The length of ``"auto"``: a quarter of the entropy is left there, whatever the units, and every part knows it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.special import softmax
from scipy.stats import entropy

from pnml import Correlation, Detector, regret
from pnml.scaling import balanced_length

from .strategies import seeds

if TYPE_CHECKING:
    from pathlib import Path


def problem(seed: int, classes: int = 7, width: int = 12, n: int = 300) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows in clusters, one for each class, and a head that tells them apart."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(size=(classes, width))
    rows = 4 * weight[rng.integers(classes, size=n)] + rng.normal(size=(n, width))
    return rows, weight, 0.1 * rng.normal(size=classes)


def mean_entropy(rows: np.ndarray, weight: np.ndarray, bias: np.ndarray, length: float) -> float:
    directions = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return float(entropy(softmax(length * directions @ weight.T + bias, axis=1), axis=1).mean())


@given(seed=seeds, classes=st.integers(2, 30))
def test_a_quarter_of_the_entropy_is_left(seed: int, classes: int) -> None:
    rows, weight, bias = problem(seed, classes)
    left = mean_entropy(rows, weight, bias, balanced_length(rows, weight, bias))
    assert left == pytest.approx(entropy(softmax(bias)) / 4, rel=1e-6)


@given(seed=seeds, factor=st.sampled_from([1e-8, 0.3, 1e5]))
def test_units_of_the_embeddings_do_not_matter(seed: int, factor: float) -> None:
    rows, weight, bias = problem(seed)
    assert balanced_length(rows * factor, weight, bias) == pytest.approx(balanced_length(rows, weight, bias))
    assert balanced_length(rows, weight / factor, bias) == pytest.approx(factor * balanced_length(rows, weight, bias))


def test_classes_that_cannot_be_told_apart_do_not_make_it_endless() -> None:
    """Two classes with one weight keep log 2 between them at any length."""
    rows, weight, _ = problem(0, classes=4)
    weight[3] = weight[2]
    length = balanced_length(rows, weight, np.zeros(4))
    ends = [mean_entropy(rows, weight, np.zeros(4), at) for at in (0.0, 1e6)]
    assert mean_entropy(rows, weight, np.zeros(4), length) == pytest.approx(ends[1] + (ends[0] - ends[1]) / 4, rel=1e-3)
    assert balanced_length(rows, np.ones((3, 12)), np.zeros(3)) == 1.0


@given(seed=seeds)
def test_the_regret_is_that_of_embeddings_of_this_length(seed: int) -> None:
    """By hand: p of the rows at the length, leverage from the inverse of Σuuᵀ."""
    rows, weight, bias = problem(seed)
    detector = Detector(weight, bias, embedding_scale="auto").fit(rows)
    fresh = np.random.default_rng(seed + 1).normal(size=(20, 12))
    units, seen = (x / np.linalg.norm(x, axis=1, keepdims=True) for x in (fresh, rows))
    h = np.einsum("ij,jk,ik->i", units, np.linalg.inv(seen.T @ seen), units)
    length = detector.embedding_length
    assert length == pytest.approx(balanced_length(rows, weight, bias), rel=1e-6)
    expected = regret(softmax(length * units @ weight.T + bias, axis=1), h / (1 + h))
    result = detector(fresh)
    np.testing.assert_allclose(result.regret, expected, rtol=1e-9)
    np.testing.assert_allclose(detector.score(fresh), expected, rtol=1e-9)
    np.testing.assert_allclose(detector.score(fresh.astype(np.float32), precision="float32"), expected, rtol=2e-2)
    np.testing.assert_allclose(result.logits, fresh @ weight.T + bias, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result.probabilities, softmax(fresh @ weight.T + bias, axis=1), atol=1e-12)


def test_batches_parts_files_and_libraries_agree(tmp_path: Path) -> None:
    rows, weight, bias = problem(1, n=3000)
    whole = Detector(weight, bias, embedding_scale="auto").fit(rows)
    parts = Detector(weight, bias, embedding_scale="auto")
    for batch in np.array_split(rows[::-1], 7):
        parts.partial_fit(batch)
    assert parts.embedding_length == whole.embedding_length
    whole.save(tmp_path / "d.safetensors")
    loaded = Detector.load(tmp_path / "d.safetensors")
    assert loaded.embedding_length == whole.embedding_length
    np.testing.assert_array_equal(loaded.score(rows[:50]), whole.score(rows[:50]))
    more = problem(2, n=500)[0]
    np.testing.assert_allclose(loaded.partial_fit(more).score(rows), whole.partial_fit(more).score(rows), rtol=1e-9)
    tensors = Detector(torch.from_numpy(weight), torch.from_numpy(bias), embedding_scale="auto")
    np.testing.assert_allclose(
        tensors.fit(torch.from_numpy(np.concatenate([rows, more]))).score(torch.from_numpy(rows)).numpy(),
        whole.score(rows),
        rtol=1e-9,
    )


def test_a_statistic_without_a_sample_is_refused() -> None:
    rows, weight, bias = problem(3)
    units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    bare = Correlation.restore(units.T @ units, len(rows), 1.0, unit_norm=True)
    detector = Detector(weight, bias, embedding_scale="auto").merge(bare)
    with pytest.raises(ValueError, match="sample of the training rows"):
        detector.score(rows)
    with pytest.raises(ValueError, match="not fitted"):
        _ = Detector(weight, bias, embedding_scale="auto").embedding_length
