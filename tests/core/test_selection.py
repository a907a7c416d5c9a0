"""select(): against SciPy, exact fractions, and by simulation with p-values of one calibration set."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import pnml
from pnml.core.calibration import calibrate

Vector = np.ndarray[Any, Any]


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("fdr", [0.05, 0.1, 0.4])
def test_select_chooses_what_scipy_adjusts_to_the_rate_at_most(seed: int, fdr: float) -> None:
    rng = np.random.default_rng(seed)
    p_values = np.concatenate([rng.random(60), rng.random(40) ** 6])
    expected = stats.false_discovery_control(p_values) <= fdr
    np.testing.assert_array_equal(pnml.select(p_values, fdr), expected)


@given(st.integers(1, 40), st.lists(st.integers(1, 40), min_size=1, max_size=40), st.sampled_from([1, 2, 3, 5, 10]))
def test_select_is_right_where_a_p_value_equals_its_limit(count: int, ranks: list[int], tenths: int) -> None:
    """Conformal p-values are fractions, so equality is common; it is decided in exact arithmetic here."""
    exact = [min(Fraction(rank, count + 1), Fraction(1)) for rank in ranks]
    fdr = Fraction(tenths, 11)
    passed = [k for k in range(1, len(exact) + 1) if sorted(exact)[k - 1] <= fdr * k / len(exact)]
    limit = sorted(exact)[passed[-1] - 1] if passed else Fraction(-1)
    for dtype in (np.float64, np.float32):
        found = pnml.select(np.array([float(one) for one in exact], dtype=dtype), float(fdr))
        assert found.tolist() == [one <= limit for one in exact]


def test_of_the_selected_at_most_the_promised_share_is_known_on_average() -> None:
    """In-distribution samples and strangers, against one calibration set each time: dependent p-values."""
    rng, fdr, known, strangers = np.random.default_rng(0), 0.2, 150, 50
    false_shares, powers = [], []
    for _ in range(1500):
        threshold = calibrate(rng.normal(size=300))
        scores = np.concatenate([rng.normal(size=known), rng.normal(loc=3, size=strangers)])
        chosen = pnml.select(threshold.p_value(scores), fdr)
        false_shares.append(chosen[:known].sum() / max(1, chosen.sum()))
        powers.append(chosen[known:].mean())
    error = np.std(false_shares) / np.sqrt(len(false_shares))
    assert np.mean(false_shares) <= fdr * known / (known + strangers) + 3 * error
    assert np.mean(powers) > 0.5


def test_select_keeps_the_library_and_chooses_nothing_of_nothing() -> None:
    found = pnml.select(torch.tensor([0.01, 0.9]))
    assert isinstance(found, torch.Tensor)
    assert found.tolist() == [True, False]
    assert pnml.select(np.array([])).tolist() == []
    assert pnml.select([1, 1], 0.5).tolist() == [False, False]


@pytest.mark.parametrize(
    ("p_values", "fdr", "message"),
    [
        ([0.1], 1.0, "fdr must lie between 0 and 1, got 1.0"),
        ([0.1, 1.5], 0.1, "p-value 1 is 1.5: expected numbers from 0 to 1"),
        ([np.nan], 0.1, "p-value 0 is nan"),
        ([[0.1]], 0.1, r"expected p-values of shape \(m,\), got shape \(1, 1\)"),
        (None, 0.1, "before a threshold is set: call calibrate"),
    ],
)
def test_select_refuses(p_values: Any, fdr: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        pnml.select(p_values, fdr)
