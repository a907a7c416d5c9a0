"""The theorem against 50 digits, at its limits, and in its invariances."""

from __future__ import annotations

import math
from random import Random  # noqa: TC003 - hypothesis reads the annotation
from typing import TYPE_CHECKING, Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnml import genie, predictive, regret
from pnml.core.theorem import log_softmax

from .strategies import log_probabilities, modest, probabilities, xtgs

if TYPE_CHECKING:
    from collections.abc import Callable

    from .strategies import Matrix

T = [0.0, 1e-12, 0.5, 1 - 1e-12, 1.0]
HARD = [
    [1e-300, 1.0],
    [1 - 1e-16, 1e-16],
    [0.0, 1.0],
    [1e-10, 1 - 1e-10],
    [0.5, 0.5, 0.0],
    [1e-300, 1e-30, 1e-3, 0.999],
    [0.2, 0.3, 0.5],
]


def exact_genies(p: list[mpmath.mpf], t: float) -> list[mpmath.mpf]:
    """Lemma 1, read aloud; at p = 0 its limit, and at p = 0, t = 1 its supremum."""
    at_zero = mpmath.mpf(1) / 2 if t == 1 else mpmath.mpf(0)
    return [v / (v + v ** mpmath.mpf(t) * (1 - v)) if v else at_zero for v in p]


def exact_regret(values: Matrix, t: float, *, log: bool) -> float:
    """Theorem 2 with probabilities that sum to one exactly, in digits enough to leave 50 after cancellation."""
    with mpmath.workdps(700):
        p = [mpmath.exp(mpmath.mpf(float(v))) if log else mpmath.mpf(float(v)) for v in values]
        total = mpmath.fsum(p)
        return float(mpmath.log(mpmath.fsum(exact_genies([v / total for v in p], t))))


@pytest.mark.parametrize("t", T)
@pytest.mark.parametrize("p", HARD)
def test_regret_has_full_relative_accuracy_however_small(p: list[float], t: float) -> None:
    assert regret(np.array(p), t) == pytest.approx(exact_regret(np.array(p), t, log=False), rel=1e-12, abs=0)


@modest
@given(log_probabilities(max_classes=4), xtgs)
def test_regret_equals_fifty_digits(log_p: Matrix, t: float) -> None:
    exact = exact_regret(log_p, t, log=True)
    assert regret(log_p, t, log=True) == pytest.approx(exact, rel=1e-12, abs=1e-307)
    assert regret(np.exp(log_p), t) == pytest.approx(exact, rel=1e-12, abs=1e-303)


@modest
@given(log_probabilities(max_classes=4), xtgs)
def test_genie_and_predictive_equal_fifty_digits(log_p: Matrix, t: float) -> None:
    with mpmath.workdps(50):
        exact = exact_genies([mpmath.exp(mpmath.mpf(float(v))) for v in log_p], t)
        genies, q = [float(g) for g in exact], [float(g / mpmath.fsum(exact)) for g in exact]
    np.testing.assert_allclose(genie(log_p, t, log=True), genies, rtol=1e-12, atol=1e-307)
    np.testing.assert_allclose(predictive(log_p, t, log=True), q, rtol=1e-12, atol=1e-307)


@pytest.mark.parametrize("t", [1 - 1e-6, 1 - 1e-9, 0.5, 0.0])
def test_log_probabilities_reach_below_the_smallest_float(t: float) -> None:
    log_p = np.array([-1e5, -0.0])
    assert regret(log_p, t, log=True) == pytest.approx(exact_regret(log_p, t, log=True), rel=1e-10, abs=0)


@pytest.mark.parametrize("t", T)
@pytest.mark.parametrize("n_classes", [2, 10, 1000, 20_000])
def test_many_classes(n_classes: int, t: float) -> None:
    weights = np.geomspace(1, 1e-8, 2)
    p = np.repeat(weights, n_classes // 2)
    p /= p.sum()
    with mpmath.workdps(50):
        high, low = (mpmath.mpf(1) / (n_classes // 2) / (1 + mpmath.mpf(1e-8)) * w for w in (1, mpmath.mpf(1e-8)))
        exact = float(mpmath.log(n_classes // 2 * mpmath.fsum(exact_genies([high, low], t))))
    assert regret(p, t) == pytest.approx(exact, rel=1e-11, abs=0)


@modest
@given(probabilities(), xtgs)
def test_regret_lies_between_zero_and_log_classes(p: Matrix, t: float) -> None:
    assert 0 <= regret(p, t) <= math.log(len(p))
    assert 0 <= regret(p, t, normalized=True) <= 1


@modest
@given(probabilities(), xtgs)
def test_normalized_divides_by_log_classes(p: Matrix, t: float) -> None:
    assert regret(p, t, normalized=True) == pytest.approx(regret(p, t) / math.log(len(p)), rel=1e-15, abs=0)


@modest
@given(log_probabilities())
def test_regret_is_exactly_zero_where_the_training_set_says_all(log_p: Matrix) -> None:
    assert regret(log_p, 0.0, log=True) == 0
    assert regret(np.exp(log_p), 0.0) == 0


@modest
@given(probabilities())
def test_regret_where_the_training_set_says_nothing(p: Matrix) -> None:
    assert regret(p, 1.0) == pytest.approx(math.log(math.fsum(1 / (2 - p))), rel=1e-13)
    np.testing.assert_allclose(genie(p, 1.0), 1 / (2 - p), rtol=1e-14)


@modest
@given(probabilities(), xtgs, xtgs)
def test_regret_never_falls_as_xtg_grows(p: Matrix, first: float, second: float) -> None:
    low, high = sorted([first, second])
    assert regret(p, low) <= regret(p, high) * (1 + 1e-12)


@modest
@given(probabilities(), xtgs)
def test_predictive_sums_to_one(p: Matrix, t: float) -> None:
    q = predictive(p, t)
    assert math.fsum(q) == pytest.approx(1, rel=1e-14)
    assert (q >= 0).all()


@modest
@given(probabilities(), xtgs)
def test_genie_is_a_probability_no_smaller_than_the_models(p: Matrix, t: float) -> None:
    genies = genie(p, t)
    assert (genies >= p * (1 - 1e-12)).all()
    assert (genies <= 1).all()


@modest
@given(probabilities(), xtgs)
def test_regret_is_the_log_of_the_sum_of_genies(p: Matrix, t: float) -> None:
    assert regret(p, t) == pytest.approx(math.log(math.fsum(genie(p, t))), abs=1e-14)
    np.testing.assert_allclose(predictive(p, t) * math.exp(regret(p, t)), genie(p, t), rtol=1e-13)


@modest
@given(probabilities(), xtgs, st.randoms(use_true_random=False))
def test_classes_may_come_in_any_order(p: Matrix, t: float, random: Random) -> None:
    order = random.sample(range(len(p)), len(p))
    assert regret(p[order], t) == pytest.approx(float(regret(p, t)), rel=1e-13, abs=0)
    np.testing.assert_allclose(genie(p[order], t), genie(p, t)[order], rtol=1e-14)


@modest
@given(st.lists(probabilities(max_classes=2), min_size=1, max_size=6), st.data())
def test_a_batch_is_its_samples(samples: list[Matrix], data: st.DataObject) -> None:
    p = np.stack(samples)
    t = np.array([data.draw(xtgs) for _ in samples])
    one_by_one = [regret(row, value) for row, value in zip(p, t, strict=True)]
    np.testing.assert_allclose(regret(p, t), one_by_one, rtol=1e-14)
    np.testing.assert_allclose(regret(p[:, None], t[:, None]), np.array(one_by_one)[:, None], rtol=1e-14)


def test_certainty_and_impossibility() -> None:
    for t in T[:-1]:
        np.testing.assert_array_equal(genie(np.array([0.0, 1.0]), t), [0, 1])
    np.testing.assert_array_equal(genie(np.array([0.0, 1.0]), 1.0), [0.5, 1])
    np.testing.assert_array_equal(genie(np.array([-np.inf, 0.0]), 1.0, log=True), [0.5, 1])


def test_no_samples() -> None:
    assert regret(np.zeros((0, 3)), np.zeros(0)).shape == (0,)
    assert genie(np.zeros((0, 3)), np.zeros(0)).shape == (0, 3)


def test_lists_are_taken_for_numpy() -> None:
    assert regret([[0.5, 0.5], [0.9, 0.1]], [1, 0.0]) == pytest.approx([math.log(4 / 3), 0])


def test_one_class_has_nothing_to_regret() -> None:
    assert regret(np.array([[1.0]]), 0.5) == 0
    assert regret(np.array([[1.0]]), 0.5, normalized=True) == 0


@pytest.mark.parametrize("function", [genie, regret, predictive])
class TestRefusals:
    def test_shapes(self, function: Callable[..., Any]) -> None:
        with pytest.raises(ValueError, match=r"shape \(2,\) for probabilities of shape \(2, 3\), got \(3,\)"):
            function(np.full((2, 3), 1 / 3), np.zeros(3))
        with pytest.raises(ValueError, match=r"got \(2, 1\)"):
            function(np.full((2, 3), 1 / 3), np.zeros((2, 1)))
        with pytest.raises(ValueError, match=r"\(\.\.\., classes\), got shape \(\)"):
            function(np.array(0.5), 0.5)

    def test_integers(self, function: Callable[..., Any]) -> None:
        with pytest.raises(ValueError, match=r"floating-point array .* of int64"):
            function(np.array([1, 0]), 0.5)

    @pytest.mark.parametrize("bad", [-0.25, 1.25, math.nan, math.inf])
    def test_probabilities_out_of_range(self, function: Callable[..., Any], bad: float) -> None:
        with pytest.raises(ValueError, match=rf"probabilities must lie in \[0, 1\], got {bad}.*log=True"):
            function(np.array([[0.5, 0.5], [bad, 0.5]]), 0.5)

    @pytest.mark.parametrize("bad", [0.25, math.nan, math.inf])
    def test_log_probabilities_out_of_range(self, function: Callable[..., Any], bad: float) -> None:
        with pytest.raises(ValueError, match=f"log-probabilities must be at most 0, got {bad}"):
            function(np.array([-1.0, bad]), 0.5, log=True)

    @pytest.mark.parametrize("bad", [-1e-3, 1.001, math.nan, math.inf])
    def test_xtg_out_of_range(self, function: Callable[..., Any], bad: float) -> None:
        with pytest.raises(ValueError, match=rf"xtg must lie in \[0, 1\], got {bad}"):
            function(np.full((2, 2), 0.5), np.array([0.5, bad]))
        with pytest.raises(ValueError, match=rf"xtg must lie in \[0, 1\], got {bad}"):
            function(np.full((2, 2), 0.5), bad)


def test_rounding_above_one_is_forgiven() -> None:
    over = 1 + 2 * np.finfo(np.float64).eps
    assert regret(np.array([over, 0.0]), 0.5) == pytest.approx(0, abs=1e-15)
    assert regret(np.array([over - 1, -np.inf]), 0.5, log=True) == pytest.approx(0, abs=1e-15)


@modest
@given(st.lists(st.floats(-1e4, 1e4), min_size=1, max_size=6), st.floats(-1e4, 1e4))
def test_log_softmax_is_normalised_and_ignores_a_shift(logits: list[float], shift: float) -> None:
    log_p = log_softmax(np.array(logits))
    assert (log_p <= 0).all()
    assert np.logaddexp.reduce(log_p) == pytest.approx(0, abs=1e-14)
    np.testing.assert_allclose(log_softmax(np.array(logits) + shift), log_p, rtol=1e-11, atol=1e-11)
