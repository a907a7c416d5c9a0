"""Compare log-loss and Brier score with scikit-learn, and the calibration error with explicit loops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn import metrics

from pnml.uses.calibration_error import Binning, brier, calibration_error, log_loss, reliability

Matrix = np.ndarray[Any, Any]


def random_probabilities(seed: int, n: int = 200, classes: int = 4) -> tuple[Matrix, Matrix]:
    """Return probabilities, and labels drawn from them with 30 % noise."""
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(classes), size=n)
    return p, np.array([rng.choice(classes, p=row) if rng.random() < 0.7 else rng.integers(classes) for row in p])


def in_bin(p: Matrix, number: int, bins: int, binning: str) -> list[int]:
    """Return the samples of a bin, with bins numbered from 1, from the definition."""
    confidence = [max(row) for row in p]
    found = []
    for sample, c in enumerate(confidence):
        if binning == "width":
            mine = (number - 1) / bins < c <= number / bins
        else:
            smaller = sum(other < c for other in confidence)
            mine = bins * smaller // len(p) + 1 == number
        if mine:
            found.append(sample)
    return found


def naive_ece(p: Matrix, y: Matrix, bins: int, binning: str) -> float:
    total = 0.0
    for number in range(1, bins + 1):
        samples = in_bin(p, number, bins, binning)
        if samples:
            right = [int(np.argmax(p[s]) == y[s]) for s in samples]
            total += len(samples) / len(p) * abs(np.mean(right) - np.mean([max(p[s]) for s in samples]))
    return 100 * total


@pytest.mark.parametrize("classes", [2, 4, 30])
def test_log_loss_and_brier_agree_with_scikit_learn(classes: int) -> None:
    p, y = random_probabilities(classes, classes=classes)
    every = list(range(classes))
    assert log_loss(p, y) == pytest.approx(metrics.log_loss(y, p, labels=every), rel=1e-12)
    expected = classes * metrics.mean_squared_error(np.eye(classes)[y], p)
    assert brier(p, y) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 1000), st.integers(1, 40), st.integers(1, 20), st.booleans())
def test_calibration_error_agrees_with_explicit_loops(seed: int, n: int, bins: int, coarse: bool) -> None:  # noqa: FBT001
    p, y = random_probabilities(seed, n, 3)
    if coarse:  # many ties, and confidences at the edges of bins
        p = np.array([[1, 0, 0], [0.5, 0.5, 0], [0.2, 0.6, 0.2], [0.1, 0.1, 0.8]])[y % 4 + np.arange(n) % 2]
    for binning in ("width", "mass"):
        kind: Binning = binning
        expected = naive_ece(p, y, bins, binning)
        assert calibration_error(p, y, bins=bins, binning=kind) == pytest.approx(expected, abs=1e-9)


def test_bins_of_equal_mass_have_equal_counts() -> None:
    p, y = random_probabilities(0, 60)
    found = reliability(p, y, bins=6, binning="mass")
    assert found.samples.tolist() == [10] * 6
    assert (np.diff(found.confidence) > 0).all()
    together = reliability(np.tile([0.75, 0.25], (60, 1)), np.zeros(60), bins=6, binning="mass")
    assert together.samples.tolist() == [60]  # equal confidences share a bin


def test_metrics_of_perfect_wrong_and_uniform_probabilities() -> None:
    sure, right = np.eye(3)[[0, 1, 2]], np.array([0, 1, 2])
    assert (log_loss(sure, right), brier(sure, right), calibration_error(sure, right)) == (0, 0, 0)
    assert (log_loss(sure, (right + 1) % 3), brier(sure, (right + 1) % 3)) == (math.inf, 2)
    assert calibration_error(sure, (right + 1) % 3) == 100
    even = np.full((8, 4), 0.25)
    assert log_loss(even, np.arange(8) % 4) == pytest.approx(math.log(4))
    assert calibration_error(even, np.arange(8) % 4) == 0


def test_calibration_error_is_small_for_labels_drawn_from_the_probabilities() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.ones(3), size=20_000)
    y = (rng.random((20_000, 1)) > np.cumsum(p, axis=1)).sum(axis=1)
    for binning in ("width", "mass"):
        kind: Binning = binning
        assert calibration_error(p, y, binning=kind) < 2
        sharpened = p**2 / np.sum(p**2, axis=1, keepdims=True)
        assert calibration_error(sharpened, y, binning=kind) > 5


def test_log_loss_accepts_half_precision_tensors() -> None:
    torch = pytest.importorskip("torch")
    p, y = random_probabilities(3)
    half = torch.tensor(p, dtype=torch.float16), torch.tensor(y)
    assert log_loss(*half) == pytest.approx(log_loss(p, y), rel=1e-2)


@pytest.mark.parametrize(
    ("p", "y", "message"),
    [
        ([0.5, 0.5], [0], "2-D batch"),
        (np.zeros((0, 2)), [], "at least one sample"),
        ([[2.0, 1.0]], [0], r"row 0 has the sum 3\.0 .*softmax"),
        ([[0.5, 0.5], [1.5, -0.5]], [0, 0], r"row 1 .*smallest entry -0\.5"),
        ([[0.5, np.nan]], [0], "must be finite"),
        ([[0.5, 0.5]], [2], "labels contain 2: expected classes from 0 to 1"),
        ([[0.5, 0.5]], [-1], "labels contain -1"),
        ([[0.5, 0.5]], [0, 1], r"labels has shape \(2,\)"),
        ([[0.5, 0.5]], [0.5], r"labels\[0\] is 0\.5"),
    ],
)
def test_log_loss_raises_for_invalid_probabilities_or_labels(p: Any, y: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        log_loss(p, y)


def test_reliability_raises_for_invalid_bins() -> None:
    with pytest.raises(ValueError, match="bins is 0"):
        reliability([[0.5, 0.5]], [0], bins=0)
    with pytest.raises(ValueError, match="binning is 'height'"):
        reliability([[0.5, 0.5]], [0], binning="height")  # type: ignore[arg-type]
