"""Compare risk and coverage with explicit loops, with all orders of ties and with closed forms."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnml.uses.selective import aurc, coverage_at_risk, excess_aurc, risk_coverage

if TYPE_CHECKING:
    from collections.abc import Sequence

Samples = list[tuple[float, bool]]
_score = st.integers(0, 4).map(float) | st.floats(-1e6, 1e6, width=32)
_samples = st.lists(st.tuples(_score, st.booleans()), min_size=1, max_size=40)
_exact = settings(deadline=None, max_examples=100)


def split(samples: Samples) -> tuple[list[float], list[bool]]:
    return [score for score, _ in samples], [wrong for _, wrong in samples]


def naive_curve(samples: Samples) -> list[tuple[float, Fraction, Fraction]]:
    """Return threshold, coverage and risk, from a loop over samples at every threshold."""
    points = []
    for threshold in sorted({score for score, _ in samples}):
        answered = [wrong for score, wrong in samples if score <= threshold]
        points.append((threshold, Fraction(len(answered), len(samples)), Fraction(sum(answered), len(answered))))
    return points


def area_in_this_order(wrong: Sequence[bool]) -> float:
    return float(np.mean([sum(wrong[:k]) / k for k in range(1, len(wrong) + 1)]))


@_exact
@given(_samples)
def test_risk_coverage_agrees_with_explicit_loops(samples: Samples) -> None:
    curve, expected = risk_coverage(*split(samples)), naive_curve(samples)
    np.testing.assert_array_equal(curve.thresholds, [threshold for threshold, _, _ in expected])
    np.testing.assert_allclose(curve.coverage, [float(100 * share) for _, share, _ in expected])
    np.testing.assert_allclose(curve.risk, [float(100 * risk) for _, _, risk in expected])


@_exact
@given(st.lists(st.tuples(st.integers(0, 2).map(float), st.booleans()), min_size=1, max_size=6))
def test_aurc_is_the_mean_over_all_orders_of_ties(samples: Samples) -> None:
    areas = []
    for order in permutations(samples):
        scores = [score for score, _ in order]
        if scores == sorted(scores):
            areas.append(area_in_this_order([wrong for _, wrong in order]))
    assert aurc(*split(samples)) == pytest.approx(100 * np.mean(areas))


@_exact
@given(_samples)
def test_excess_aurc_is_relative_to_all_errors_last(samples: Samples) -> None:
    scores, wrong = split(samples)
    best = 100 * area_in_this_order(sorted(wrong))
    assert aurc(scores, wrong) - excess_aurc(scores, wrong) == pytest.approx(best)
    assert excess_aurc(scores, wrong) >= -1e-9


@_exact
@given(_samples, st.integers(0, 20))
def test_coverage_at_risk_is_the_largest_allowed(samples: Samples, percent: int) -> None:
    allowed = [share for _, share, risk in naive_curve(samples) if risk <= Fraction(percent, 100)]
    assert coverage_at_risk(*split(samples), percent / 100) == pytest.approx(float(100 * max(allowed, default=0)))


@pytest.mark.parametrize("n", [7, 100])
def test_coverage_at_risk_includes_a_risk_met_exactly(n: int) -> None:
    wrong = np.arange(n) < 7
    assert coverage_at_risk(np.zeros(n), wrong, 7 / n) == 100


def test_aurc_and_coverage_match_closed_forms() -> None:
    rng = np.random.default_rng(0)
    wrong = rng.random(500) < 0.2
    rate, n, errors = 100 * wrong.mean(), 500, int(wrong.sum())
    assert aurc(np.zeros(n), wrong) == pytest.approx(rate)  # a constant score
    ideal = 100 / n * sum((k - (n - errors)) / k for k in range(n - errors + 1, n + 1))
    assert aurc(wrong + rng.random(n) / 2, wrong) == pytest.approx(ideal)
    worst = 100 / n * (errors + sum(errors / k for k in range(errors + 1, n + 1)))
    assert aurc(-1.0 * wrong, wrong) == pytest.approx(worst)
    assert coverage_at_risk(wrong, wrong, 0) == pytest.approx(100 - rate)
    assert coverage_at_risk(~wrong, wrong, 0.0) == 0  # the first answers are wrong
    assert aurc(rng.random(n), np.zeros(n, bool)) == 0


def test_aurc_accepts_tensors_and_infinite_scores() -> None:
    torch = pytest.importorskip("torch")
    scores, wrong = [0.5, np.inf, 0.25], [False, True, True]
    tensors = torch.tensor(scores, dtype=torch.float32), torch.tensor(wrong)
    assert aurc(*tensors) == aurc([1, 2, 0], wrong)


@pytest.mark.parametrize(
    ("scores", "wrong", "message"),
    [
        ([], [], r"scores has shape \(0,\)"),
        ([[1.0]], [True], r"scores has shape \(1, 1\)"),
        ([1.0, np.nan], [True, False], r"scores\[1\] is NaN"),
        ([1.0, 2.0], [True], r"wrong has shape \(1,\): expected one per sample, shape \(2,\)"),
        ([1.0, 2.0], [0.5, 0.0], r"wrong\[0\] is 0.5"),
        ([1.0, 2.0], [0, 7], "wrong contains 7"),
    ],
)
def test_aurc_raises_for_invalid_input(scores: list[float], wrong: list[bool], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        aurc(scores, wrong)


@pytest.mark.parametrize("risk", [-0.1, 5, float("nan")])
def test_coverage_at_risk_raises_for_risk_outside_0_to_1(risk: float) -> None:
    with pytest.raises(ValueError, match=r"risk is .*such as 0\.01"):
        coverage_at_risk([1.0], [True], risk)
