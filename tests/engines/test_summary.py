"""Summaries of parts add up to the summary of all rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pnml.engines.summary import Summary
from pnml.io.store import Part


def summary_of(regret: list[float]) -> Summary:
    return Summary.of(Part({"regret": np.array(regret), "is_ood": np.array(regret) > 0.5}, ["broken.png"]))


@settings(max_examples=50)
@given(
    regret=st.lists(st.floats(0, math.log(3)), min_size=1, max_size=50), share=st.floats(0, 1), cut=st.integers(0, 50)
)
def test_quantile_of_added_summaries_is_that_of_all_rows(regret: list[float], share: float, cut: int) -> None:
    summary = summary_of(regret[:cut]) + summary_of([]) + summary_of(regret[cut:])
    assert summary.rows == len(regret)
    assert summary.flagged == sum(value > 0.5 for value in regret)
    assert summary.skipped == ("broken.png",) * 3
    expected = sorted(regret)[max(0, math.ceil(share * len(regret)) - 1)]
    assert summary.quantile(share) == pytest.approx(expected, rel=2**-12, abs=1e-37)  # a bin's half; no subnormals
    assert (summary.quantile(0), summary.quantile(1)) == (min(regret), max(regret))


@given(where=st.integers(0, 5), cut=st.integers(0, 6))
def test_a_regret_that_is_no_number_counts_as_the_largest_wherever_it_stands(where: int, cut: int) -> None:
    regret = [0.1, 0.2, 0.3, 0.4, 0.5]
    regret.insert(where, math.nan)
    summary = summary_of(regret[:cut]) + summary_of(regret[cut:])
    assert summary.quantile(0) == 0.1
    assert summary.quantile(0.5) == pytest.approx(0.3, rel=2**-12)
    assert summary.quantile(1) == math.inf
    assert Summary.from_json(summary.to_json()) == summary
