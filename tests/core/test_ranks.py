"""Ranks of a stream among calibration scores and its own past, against explicit comparison of all pairs."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy import stats

from pnml.core.ranks import RankPool

Vector = np.ndarray[Any, Any]


def compared(calibration: Vector, stream: Vector) -> tuple[list[int], list[int]]:
    """Compare every score with all before it, one by one."""
    seen, above, ties = calibration.tolist(), [], []
    for score in stream.tolist():
        above.append(sum(one > score for one in seen))
        ties.append(sum(one == score for one in seen))
        seen.append(score)
    return above, ties


few_values = st.sampled_from([-3.0, -0.25, 0.0, 0.125, 0.5, 1.0, 7.0])


@given(arrays(np.float64, st.integers(1, 8), elements=few_values), arrays(np.float64, 30, elements=few_values))
def test_ranks_are_those_of_comparing_all_pairs(calibration: Vector, stream: Vector) -> None:
    pool = RankPool(calibration)
    above, ties = pool.add(stream)
    assert (above.tolist(), ties.tolist()) == compared(calibration, stream)
    assert pool.size == len(calibration) + len(stream)


def test_ranks_of_a_batch_larger_than_a_block_are_those_of_comparing_all_pairs() -> None:
    rng = np.random.default_rng(0)
    calibration, stream = rng.integers(0, 900, 50) / 8, rng.integers(0, 900, 1300) / 8
    above, ties = RankPool(calibration).add(stream)
    assert (above.tolist(), ties.tolist()) == compared(calibration, stream)


@given(st.lists(st.integers(0, 40), max_size=6))
def test_batches_of_any_size_give_the_same_ranks(sizes: list[int]) -> None:
    rng = np.random.default_rng(1)
    calibration, stream, uniforms = rng.gamma(2, 0.1, 20), rng.gamma(2, 0.1, sum(sizes)), 1 - rng.random(sum(sizes))
    whole, parts = RankPool(calibration), RankPool(calibration)
    expected = whole.p_values(stream, uniforms)
    ends = np.cumsum([0, *sizes])
    found = [parts.p_values(stream[a:b], uniforms[a:b]) for a, b in pairwise(ends)]
    np.testing.assert_array_equal(np.concatenate([[], *found]), expected)
    np.testing.assert_array_equal(whole.keys, parts.keys)
    np.testing.assert_array_equal(whole.counts, parts.counts)


@pytest.mark.parametrize("score", [np.nan, np.inf])
def test_a_score_that_is_no_number_is_larger_than_all_others(score: float) -> None:
    above, ties = RankPool(np.array([1.0, 1e300])).add(np.array([score, np.nan, 2.0]))
    assert above.tolist() == [0, 0, 3]
    assert ties.tolist() == [0, 1, 0]


def test_scores_are_told_apart_to_a_ten_thousandth_and_keep_their_order() -> None:
    rng = np.random.default_rng(2)
    scores = np.concatenate([rng.normal(size=500), -np.exp(rng.normal(scale=9, size=500)), [0.0, -0.0]])
    for score in scores[scores != 0]:
        pool = RankPool(np.array([score]))
        above, ties = pool.add(np.array([score * (1 + 1.3e-4)]))
        assert (above[0], ties[0]) == (int(score < 0), 0)
    pool = RankPool(np.sort(scores))
    assert (np.diff(pool.keys) > 0).all()
    np.testing.assert_allclose(np.repeat(pool.keys, pool.counts), np.sort(scores), rtol=1.3e-4)


def test_the_number_of_counts_does_not_grow_with_the_stream() -> None:
    rng = np.random.default_rng(3)
    pool = RankPool(rng.uniform(1, 2, 100))
    pool.add(rng.uniform(1, 2, 60_000))
    assert pool.size == 60_100
    assert len(pool.keys) <= 2**13


@pytest.mark.parametrize("count", [1, 50])
def test_p_values_of_many_streams_are_uniform_and_independent(count: int) -> None:
    """Over calibration sets and streams, also with many ties, which is where a fixed calibration set fails."""
    rng = np.random.default_rng(4)
    found = []
    for _ in range(3000):
        pool = RankPool(rng.integers(0, 9, count).astype(float))
        found.append(pool.p_values(rng.integers(0, 9, 4).astype(float), 1 - rng.random(4)))
    p_values = np.array(found)
    for column in p_values.T:
        assert stats.kstest(column, "uniform").pvalue > 1e-3
    cells = np.ravel_multi_index((p_values[:, [0, -1]] * 4).astype(int).clip(max=3).T, (4, 4))
    assert stats.chisquare(np.bincount(cells, minlength=16)).pvalue > 1e-3
    assert abs(np.corrcoef(p_values.T) - np.eye(4)).max() < 4 / np.sqrt(3000)
