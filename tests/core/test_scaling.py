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

from oracles import about_class_means, balanced_head
from pnml import Correlation, Detector
from pnml.core.scaling import balanced_length

from .strategies import modest, seeds

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


@modest
@given(seed=seeds, classes=st.integers(2, 30))
def test_a_quarter_of_the_entropy_is_left(seed: int, classes: int) -> None:
    rows, weight, bias = problem(seed, classes)
    norm = float(np.linalg.norm(rows, axis=1).mean())
    length = balanced_length(rows, weight, bias, mean_norm=norm)
    assert mean_entropy(rows, weight, bias * length / norm, length) == pytest.approx(np.log(classes) / 4, rel=1e-6)


@modest
@given(seed=seeds, factor=st.sampled_from([1e-8, 0.3, 1e5]))
def test_units_of_the_embeddings_do_not_matter(seed: int, factor: float) -> None:
    rows, weight, bias = problem(seed)
    plain = Detector(weight, bias).fit(rows)
    scaled = Detector(weight / factor, bias).fit(rows * factor)
    assert scaled.embedding_length == pytest.approx(factor * plain.embedding_length, rel=1e-6)
    assert scaled.bias_scale == pytest.approx(plain.bias_scale, rel=1e-6)


@modest
@given(seed=seeds, temperature=st.sampled_from([0.01, 5.0]))
def test_a_surer_head_gets_shorter_embeddings_and_the_same_p(seed: int, temperature: float) -> None:
    """What a head says at a quarter of its entropy does not depend on how sure it is."""
    rows, weight, bias = problem(seed)
    plain, other = Detector(weight, bias).fit(rows), Detector(weight / temperature, bias / temperature).fit(rows)
    assert other.embedding_length == pytest.approx(temperature * plain.embedding_length, rel=1e-6)
    assert other.bias_scale == pytest.approx(temperature * plain.bias_scale, rel=1e-6)


def test_a_bias_that_cancels_a_common_direction_goes_on_cancelling_it() -> None:
    """Embeddings in a narrow cone, and a head that looks at what is left of them without the axis of the cone."""
    rng = np.random.default_rng(0)
    rows = 10 * np.eye(12)[0] + rng.normal(size=(500, 12))
    weight = rng.normal(size=(4, 12))
    weight[:, 0] = [3.0, -3.0, 1.0, -1.0]
    detector = Detector(weight, -10 * weight[:, 0]).fit(rows)
    assert 0.1 < detector.bias_scale < 2
    directions = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    at_their_length = detector.embedding_length * directions @ weight.T + detector.bias_scale * detector.bias
    assert set(at_their_length.argmax(axis=1)) == {0, 1, 2, 3}


def test_classes_that_cannot_be_told_apart_do_not_make_it_endless() -> None:
    """Two classes with one weight keep log 2 between them at any length."""
    rows, weight, _ = problem(0, classes=4)
    weight[3] = weight[2]
    length = balanced_length(rows, weight, np.zeros(4), mean_norm=1.0)
    ends = [mean_entropy(rows, weight, np.zeros(4), at) for at in (0.0, 1e6)]
    assert mean_entropy(rows, weight, np.zeros(4), length) == pytest.approx(ends[1] + (ends[0] - ends[1]) / 4, rel=1e-3)
    assert balanced_length(rows, np.ones((3, 12)), np.zeros(3), mean_norm=2.5) == 2.5


@modest
@given(seed=seeds)
def test_the_regret_is_that_of_embeddings_of_this_length(seed: int) -> None:
    rows, weight, bias = problem(seed)
    detector = Detector(weight, bias, embedding_scale="auto").fit(rows)
    fresh = np.random.default_rng(seed + 1).normal(size=(20, 12))
    length, scaled = balanced_head(rows, weight, bias)
    assert detector.embedding_length == pytest.approx(length, rel=1e-6)
    np.testing.assert_allclose(detector.bias_scale * bias, scaled, rtol=1e-6)
    at = detector.embedding_length, detector.bias_scale * bias
    expected = about_class_means(weight, bias, [rows], [fresh], at=at)["regret"]
    result = detector(fresh)
    np.testing.assert_allclose(result.regret, expected, rtol=1e-6)
    np.testing.assert_allclose(detector.score(fresh), expected, rtol=1e-6)
    np.testing.assert_allclose(result.logits, fresh @ weight.T + bias, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(result.probabilities, softmax(fresh @ weight.T + bias, axis=1), atol=1e-12)


def test_batches_parts_files_and_libraries_agree(tmp_path: Path) -> None:
    rows, weight, bias = problem(1, n=3000)
    whole = Detector(weight, bias, embedding_scale="auto").fit(rows)
    parts = Detector(weight, bias, embedding_scale="auto")
    for batch in np.array_split(rows[::-1], 7):
        parts.partial_fit(batch)
    assert parts.embedding_length == pytest.approx(whole.embedding_length, rel=1e-12)  # summed in another order
    whole.save(tmp_path / "d.safetensors")
    loaded = Detector.load(tmp_path / "d.safetensors")
    assert loaded.embedding_length == whole.embedding_length
    np.testing.assert_array_equal(loaded.score(rows[:50]), whole.score(rows[:50]))
    more = problem(2, n=500)[0]
    whole.partial_fit(more)
    tensors = Detector(torch.from_numpy(weight), torch.from_numpy(bias), embedding_scale="auto")
    np.testing.assert_allclose(
        tensors.fit(torch.from_numpy(np.concatenate([rows, more]))).score(torch.from_numpy(rows)).numpy(),
        whole.score(rows),
        rtol=1e-6,
    )


def test_a_statistic_of_another_scale_is_refused_and_before_the_fit_there_is_no_length() -> None:
    rows, weight, bias = problem(3)
    with pytest.raises(ValueError, match="7 and 0 classes"):
        Detector(weight, bias).merge(Correlation(unit_norm=True).update(rows))
    with pytest.raises(ValueError, match="not fitted"):
        _ = Detector(weight, bias).embedding_length
