"""The bets: against an explicit sum over all starts, and by simulation of streams without a change."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate

from pnml.core.martingale import BETS, Martingale

Vector = np.ndarray[Any, Any]


def factor(bet: tuple[float, float], p_value: float) -> float:
    level, share = bet
    return share / level if p_value <= level else (1 - share) / (1 - level)


def weight(number: int) -> float:
    return 1 / math.log2(number + 1) - 1 / math.log2(number + 2)


def evidence(p_values: list[float]) -> float:
    """Sum the fortunes of every bet and every start, in plain arithmetic, and what still waits."""
    total = 1 - sum(weight(start) for start in range(1, len(p_values) + 1))
    for bet in BETS:
        for start in range(1, len(p_values) + 1):
            gained = math.prod(factor(bet, p_value) for p_value in p_values[start - 1 :])
            total += weight(start) * gained / len(BETS)
    return total


@pytest.mark.parametrize("bet", BETS)
def test_no_bet_gains_on_average_against_uniform_p_values(bet: tuple[float, float]) -> None:
    level, share = bet
    mean, _ = integrate.quad(lambda p_value: factor(bet, p_value), 0, 1, points=[level])
    assert mean == pytest.approx(1)
    assert 0 < share < 1


@given(st.lists(st.floats(1e-6, 1), min_size=1, max_size=12))
def test_evidence_is_the_sum_over_all_bets_and_starts(p_values: list[float]) -> None:
    found = Martingale().grow(np.array(p_values))
    assert found[-1] == pytest.approx(math.log(evidence(p_values)), rel=1e-9, abs=1e-9)


@pytest.mark.parametrize("seen", [[], [0.5, 0.003], [0.9] * 4])
def test_evidence_stays_the_same_on_average(seen: list[float]) -> None:
    """The mean of the evidence after one more p-value, integrated over it, is the evidence before."""
    levels = sorted({level for level, _ in BETS})
    mean, _ = integrate.quad(lambda p: math.exp(Martingale().grow(np.array([*seen, p]))[-1]), 0, 1, points=levels)
    assert mean == pytest.approx(evidence(seen) if seen else 1.0, rel=1e-6)


@given(st.lists(st.integers(0, 50), max_size=8))
def test_batches_of_any_size_give_the_same_state(sizes: list[int]) -> None:
    p_values = np.random.default_rng(0).random(sum(sizes)) ** 1.5
    whole, parts = Martingale(), Martingale()
    expected = whole.grow(p_values)
    found = [parts.grow(part) for part in np.split(p_values, np.cumsum(sizes))]
    np.testing.assert_allclose(np.concatenate(found), expected, rtol=1e-12, atol=1e-12)
    assert parts.count == whole.count == sum(sizes)
    assert (parts.since == whole.since).all()
    for name, array in whole.arrays().items():
        np.testing.assert_allclose(parts.arrays()[name], array, rtol=1e-12)


def test_streams_side_by_side_are_those_alone() -> None:
    p_values = np.random.default_rng(1).random((40, 3))
    together = Martingale((3,))
    found = together.grow(p_values)
    for number in range(3):
        alone = Martingale()
        np.testing.assert_allclose(found[:, number], alone.grow(p_values[:, number]), rtol=1e-12, atol=1e-12)
        assert together.since[number] == alone.since


def test_ten_thousand_streams_without_a_change_raise_no_more_alarms_than_promised() -> None:
    rng, streams = np.random.default_rng(2), 10_000
    peak = np.full(streams, -np.inf)
    for start in range(0, streams, 500):
        martingale = Martingale((500,))
        for _ in range(3):
            here = slice(start, start + 500)
            peak[here] = np.maximum(peak[here], martingale.grow(rng.random((40, 500))).max(axis=0))
    for alpha in (0.5, 0.1, 0.05, 0.01):
        assert 0 < (peak >= math.log(1 / alpha)).mean() <= alpha


@pytest.mark.parametrize(("quiet", "share", "within"), [(0, 1.0, 12), (2000, 1.0, 20), (2000, 0.4, 80)])
def test_a_change_is_noticed_soon_and_dated(quiet: int, share: float, within: int) -> None:
    rng = np.random.default_rng(3)
    p_values = rng.random(quiet + within)
    is_changed = (np.arange(len(p_values)) >= quiet) & (rng.random(len(p_values)) < share)
    martingale = Martingale()
    found = martingale.grow(np.where(is_changed, 0.02 * p_values, p_values))
    assert found[:quiet].max(initial=0) < math.log(100) < found[-1]
    assert abs(int(martingale.since) - quiet - 1) <= 15


def test_p_values_that_are_too_large_are_noticed_too() -> None:
    assert Martingale().grow(1 - 0.05 * np.random.default_rng(4).random(30))[-1] > math.log(1e4)


def test_a_million_samples_before_a_change_cost_the_logarithm_of_their_number() -> None:
    """The bets that start with the change have the weight ln 2 / (j ln² j) or so, whatever came before."""
    quiet = 1_000_000
    martingale = Martingale.restore(quiet, Martingale().arrays())
    martingale.gains = np.full(len(BETS), -5000.0)  # what a long quiet stream may leave
    martingale.lowest, martingale.lowest_at = martingale.gains, np.full(len(BETS), quiet + 1)
    gained = 12 * math.log(0.6 / 0.01)
    expected = math.log(weight(quiet + 1)) + gained - math.log(len(BETS))
    found = martingale.grow(np.full(12, 0.005))
    assert found[-1] == pytest.approx(expected, abs=1)
    assert int(martingale.since) == quiet + 1
