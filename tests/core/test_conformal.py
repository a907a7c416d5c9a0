"""Ranks of conformal thresholds, and intervals of rates, compared with scipy."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pnml.core.conformal import flagged_ranks, guaranteed_interval, least_count, observed_interval

confidences = st.sampled_from([0.5, 0.9, 0.95, 0.99])


@settings(deadline=None)
@given(count=st.integers(1, 3000), rate=st.floats(0.005, 0.9))
def test_flagged_ranks_are_the_most_that_keep_the_rate(count: int, rate: float) -> None:
    flagged = flagged_ranks(count, rate)
    assert flagged <= (count + 1) * rate * (1 + 1e-9)
    assert flagged == count or flagged + 1 > (count + 1) * rate


@pytest.mark.parametrize("rate", [0.5, 0.2, 0.1, 0.05, 0.01, 0.001, 1 / 3, 0.07])
def test_least_count_is_the_first_that_flags_a_rank(rate: float) -> None:
    least = least_count(rate)
    assert flagged_ranks(least, rate) == 1
    assert flagged_ranks(least - 1, rate) == 0 or least == 1


@settings(deadline=None)
@given(count=st.integers(1, 2000), share=st.floats(0, 1), confidence=confidences)
def test_guaranteed_interval_is_that_of_the_beta_distribution(count: int, share: float, confidence: float) -> None:
    flagged = max(1, math.floor(share * count))
    expected = stats.beta(flagged, count + 1 - flagged).interval(confidence)
    np.testing.assert_allclose(guaranteed_interval(flagged, count, confidence), expected, rtol=1e-7)


@settings(deadline=None)
@given(count=st.integers(1, 2000), share=st.floats(0, 1), confidence=confidences)
def test_observed_interval_is_that_of_clopper_and_pearson(count: int, share: float, confidence: float) -> None:
    flagged = round(share * count)
    expected = stats.binomtest(flagged, count).proportion_ci(confidence)
    np.testing.assert_allclose(observed_interval(flagged, count, confidence), expected, rtol=1e-7, atol=1e-12)
