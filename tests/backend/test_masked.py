"""Masked entries of NumPy arrays: refused wherever numbers come in, and never used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import pnml
from pnml import metrics
from pnml.backend.arrays import unmasked
from pnml.core.calibration import calibrate
from pnml.report import ScoredSet
from pnml.uses.selective import risk_coverage

if TYPE_CHECKING:
    from collections.abc import Callable

ROWS = np.random.default_rng(0).normal(size=(40, 4))
WEIGHT = np.random.default_rng(1).normal(size=(3, 4))
SCORES = np.linspace(0.01, 0.9, 40)


def detector() -> pnml.Detector:
    fitted = pnml.Detector(WEIGHT).fit(ROWS)
    fitted.calibrate(ROWS[:30] + 0.1)
    return fitted


OF_ROWS: dict[str, Callable[[Any], Any]] = {
    "fit": lambda x: pnml.Detector(WEIGHT).fit(x),
    "partial_fit": lambda x: pnml.Detector(WEIGHT).partial_fit(x),
    "features": lambda x: pnml.Detector(WEIGHT).fit(ROWS, features=[x]),
    "calibrate": lambda x: detector().calibrate(x),
    "call": lambda x: detector()(x).regret,
    "score": lambda x: detector().score(x),
    "weight": lambda x: pnml.Detector(x[:3]),
    "correlation": lambda x: pnml.Correlation().update(x),
    "subspace": lambda x: pnml.Subspace.fit(pnml.Correlation().update(ROWS)).xtg(x),
    "single layer": lambda x: pnml.SingleLayer().fit(x, np.arange(40) % 3),
    "regret": lambda x: pnml.regret(x / x, 0.5),
    "a list of rows": lambda x: detector()(list(x)),
}
OF_SCORES: dict[str, Callable[[Any], Any]] = {
    "select": pnml.select,
    "auroc": lambda x: metrics.auroc(SCORES, x),
    "threshold": calibrate,
    "p-value": lambda x: calibrate(SCORES).p_value(x),
    "is_ood": lambda x: calibrate(SCORES).is_ood(x),
    "monitor": lambda x: pnml.Monitor(calibrate(SCORES)).update(x),
    "report": lambda x: ScoredSet(name="a", role="unlabelled", regret=x),
    "selective": lambda x: risk_coverage(x, np.zeros(40)),
    "labels": lambda x: pnml.Detector(WEIGHT).fit(ROWS, labels=(0 * x).astype(int)),
}


@pytest.mark.parametrize("function", OF_ROWS.values(), ids=OF_ROWS.keys())
def test_masked_rows_are_refused_by_their_place(function: Callable[[Any], Any]) -> None:
    masked = np.ma.array(ROWS, mask=np.zeros(ROWS.shape, dtype=bool))
    masked[2, 3] = np.ma.masked
    with pytest.raises(ValueError, match=r"entries is masked, the first in row \d(, column 3)?: .* x\.filled"):
        function(masked)


@pytest.mark.parametrize("function", OF_SCORES.values(), ids=OF_SCORES.keys())
def test_masked_scores_are_refused_by_their_place(function: Callable[[Any], Any]) -> None:
    with pytest.raises(ValueError, match=r"3 of 40 entries are masked, the first in row 7: .* x\.filled"):
        function(np.ma.array(SCORES, mask=np.isin(np.arange(40), [7, 8, 9])))


@settings(deadline=None, max_examples=50)
@given(arrays(np.float64, (5, 3), elements=st.floats(-9, 9)), arrays(np.bool_, (5, 3)))
def test_what_comes_back_has_no_mask_and_every_value(values: np.ndarray[Any, Any], mask: np.ndarray[Any, Any]) -> None:
    masked = np.ma.array(values, mask=mask)
    if mask.any():
        with pytest.raises(ValueError, match=f"{mask.sum()} of 15 entries"):
            unmasked(masked)
    else:
        found = unmasked(masked)
        assert type(found) is np.ndarray
        np.testing.assert_array_equal(found, values)


def test_a_masked_array_without_masked_entries_scores_as_a_plain_one() -> None:
    np.testing.assert_array_equal(detector()(np.ma.array(ROWS)).regret, detector()(ROWS).regret)


def test_arrays_that_are_not_masked_stay_themselves() -> None:
    for values in (ROWS, [1.0, 2.0], torch.ones(2), None):
        assert unmasked(values) is values


def test_filled_rows_of_no_number_are_flagged() -> None:
    masked = np.ma.array(ROWS[:3], mask=[[False] * 4, [True] + [False] * 3, [False] * 4])
    result = detector()(masked.filled(np.nan))
    assert np.isnan(result.regret).tolist() == [False, True, False]
    assert result.is_ood is not None
    assert result.is_ood[1]
