"""Compare the metrics with scikit-learn and with their definitions in exact fractions."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score, roc_curve

from pnml import metrics

if TYPE_CHECKING:
    from collections.abc import Sequence

_few_values = st.integers(0, 4).map(float)
_constant = st.just(1.5)
_many_values = st.floats(-1e6, 1e6, width=32)
_scores = st.one_of(*(st.lists(value, min_size=1, max_size=60) for value in (_few_values, _constant, _many_values)))
_exact = settings(deadline=None, max_examples=200)


def labelled(ind: Sequence[float], ood: Sequence[float]) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return labels (1 for OOD) and scores, as scikit-learn takes them."""
    return np.repeat([0, 1], [len(ind), len(ood)]), np.concatenate([ind, ood])


def naive_tnr(ind: Sequence[float], ood: Sequence[float], tpr: Fraction) -> float:
    threshold = min(t for t in ind if Fraction(sum(s <= t for s in ind), len(ind)) >= tpr)
    return 100 * sum(s > threshold for s in ood) / len(ood)


@_exact
@given(_scores, _scores)
def test_evaluate_agrees_with_scikit_learn(ind: list[float], ood: list[float]) -> None:
    is_ood, scores = labelled(ind, ood)
    found = metrics.evaluate(ind, ood)
    assert found.auroc == pytest.approx(100 * roc_auc_score(is_ood, scores), abs=1e-9)
    assert found.aupr_in == pytest.approx(100 * average_precision_score(1 - is_ood, -scores), abs=1e-9)
    assert found.aupr_out == pytest.approx(100 * average_precision_score(is_ood, scores), abs=1e-9)
    fpr, tpr, _ = roc_curve(1 - is_ood, -scores, drop_intermediate=False)
    assert found.tnr_at_tpr95 == pytest.approx(100 * (1 - fpr[tpr >= 0.95][0]), abs=1e-9)
    assert found.detection_accuracy == pytest.approx(100 * np.max(tpr + 1 - fpr) / 2, abs=1e-9)
    fpr, tpr, _ = roc_curve(is_ood, scores, drop_intermediate=False)
    assert found.fpr_at_tpr95_ood == pytest.approx(100 * fpr[tpr >= 0.95][0], abs=1e-9)


@_exact
@given(_scores, _scores)
def test_each_function_agrees_with_evaluate(ind: list[float], ood: list[float]) -> None:
    assert metrics.evaluate(ind, ood) == metrics.Metrics(
        auroc=metrics.auroc(ind, ood),
        tnr_at_tpr95=metrics.tnr_at_tpr(ind, ood),
        detection_accuracy=metrics.detection_accuracy(ind, ood),
        aupr_in=metrics.aupr_in(ind, ood),
        aupr_out=metrics.aupr_out(ind, ood),
        fpr_at_tpr95_ood=metrics.fpr_at_tpr_ood(ind, ood),
    )


@_exact
@given(_scores, _scores, st.integers(1, 100))
def test_threshold_is_the_smallest_that_reaches_the_tpr(ind: list[float], ood: list[float], percent: int) -> None:
    tpr = Fraction(percent, 100)
    assert metrics.tnr_at_tpr(ind, ood, percent / 100) == pytest.approx(naive_tnr(ind, ood, tpr), abs=1e-9)
    # Negated scores with IND and OOD exchanged follow the other convention.
    swapped = naive_tnr([-s for s in ood], [-s for s in ind], tpr)
    assert metrics.fpr_at_tpr_ood(ind, ood, percent / 100) == pytest.approx(100 - swapped, abs=1e-9)


@pytest.mark.parametrize(("n", "kept"), [(1, 1), (19, 19), (20, 19), (21, 20), (40, 38), (10_000, 9_500)])
def test_tnr_at_tpr_is_exact_for_small_and_round_counts(n: int, kept: int) -> None:
    # With one OOD score at each IND score, the OOD scores above the threshold are as many as the IND scores above it.
    scores = np.arange(n)
    assert metrics.tnr_at_tpr(scores, scores) == pytest.approx(100 * (n - kept) / n)


def test_infinite_scores_are_treated_as_the_largest() -> None:
    finite = metrics.evaluate([1, 2, 9], [2, 9, 9])
    assert metrics.evaluate([1, 2, np.inf], [2, np.inf, np.inf]) == finite


@pytest.mark.parametrize("dtype", ["float32", "float16", "int64"])
def test_evaluate_accepts_other_dtypes_and_tensors(dtype: str) -> None:
    torch = pytest.importorskip("torch")
    ind, ood = np.array([1, 2, 5], dtype=dtype), np.array([3, 5, 7], dtype=dtype)
    expected = metrics.evaluate([1, 2, 5], [3, 5, 7])
    assert metrics.evaluate(ind, ood) == expected
    assert metrics.evaluate(torch.as_tensor(ind), torch.as_tensor(ood)) == expected


def test_evaluate_perfect_and_reversed_separation() -> None:
    assert metrics.evaluate([0, 1], [2, 3]) == metrics.Metrics(100, 100, 100, 100, 100, 0)
    reverse = metrics.evaluate([2, 3], [0, 1])
    assert (reverse.auroc, reverse.tnr_at_tpr95, reverse.detection_accuracy) == (0, 0, 50)
    assert reverse.fpr_at_tpr95_ood == 100


def test_average_is_the_mean_of_each_metric() -> None:
    first, second = metrics.evaluate([0, 1], [2, 3]), metrics.evaluate([0, 3], [1, 2, 3])
    mean = metrics.average(iter([first, second]))
    for name in ("auroc", "tnr_at_tpr95", "detection_accuracy", "aupr_in", "aupr_out", "fpr_at_tpr95_ood"):
        assert getattr(mean, name) == pytest.approx((getattr(first, name) + getattr(second, name)) / 2)


def test_average_of_nothing_raises() -> None:
    with pytest.raises(ValueError, match="at least one Metrics"):
        metrics.average([])


def test_nan_score_raises_with_its_index() -> None:
    with pytest.raises(ValueError, match=r"ood\[2\] is NaN \(2 of 4"):
        metrics.evaluate([1.0], [1.0, 2.0, np.nan, np.nan])


@pytest.mark.parametrize("shape", [(0,), (3, 1), ()])
def test_scores_of_wrong_shape_raise(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"ind has shape .*one score per sample"):
        metrics.auroc(np.zeros(shape), [1.0])


@pytest.mark.parametrize("tpr", [0.0, -0.1, 1.1, 95, float("nan")])
def test_tpr_outside_its_range_raises(tpr: float) -> None:
    for metric in (metrics.tnr_at_tpr, metrics.fpr_at_tpr_ood):
        with pytest.raises(ValueError, match=r"tpr is .*0\.95"):
            metric([1.0], [2.0], tpr)


@pytest.mark.parametrize("value", [-0.1, 100.1, float("nan")])
def test_metrics_outside_0_to_100_raise(value: float) -> None:
    with pytest.raises(ValueError, match=r"aupr_in is .* percentage"):
        metrics.Metrics(50, 50, 50, value, 50, 50)


@_exact
@given(_scores, _scores)
def test_tnr_curve_is_the_roc_curve_of_scikit_learn_with_its_thresholds(ind: list[float], ood: list[float]) -> None:
    curve = metrics.tnr_curve(ind, ood)
    is_ood, scores = labelled(ind, ood)
    fpr, tpr, thresholds = roc_curve(1 - is_ood, -scores, drop_intermediate=False)
    np.testing.assert_allclose(curve.tpr, 100 * tpr, atol=1e-9)
    np.testing.assert_allclose(curve.tnr, 100 * (1 - fpr), atol=1e-9)
    np.testing.assert_array_equal(curve.thresholds, -thresholds)
    for threshold, kept, flagged in zip(*curve, strict=True):
        assert kept == pytest.approx(100 * np.mean([score <= threshold for score in ind]))
        assert flagged == pytest.approx(100 * np.mean([score > threshold for score in ood]))
    at_95 = curve.threshold_at_tpr(0.95)
    assert metrics.tnr_at_tpr(ind, ood) == pytest.approx(100 * np.mean([score > at_95 for score in ood]))
    best = [score <= curve.best_threshold() for score in ind], [score > curve.best_threshold() for score in ood]
    assert metrics.detection_accuracy(ind, ood) == pytest.approx(50 * (np.mean(best[0]) + np.mean(best[1])))


@pytest.mark.parametrize("count", [20, 40, 100])
def test_threshold_at_tpr_is_the_smallest_that_keeps_enough(count: int) -> None:
    curve = metrics.tnr_curve(np.arange(count), [0.0])
    found = [curve.threshold_at_tpr(kept / count) for kept in range(1, count + 1)]
    assert found == list(range(count))


def test_threshold_at_tpr_raises_for_impossible_tpr() -> None:
    with pytest.raises(ValueError, match="tpr is 95"):
        metrics.tnr_curve([1.0], [2.0]).threshold_at_tpr(95)
