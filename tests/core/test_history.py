"""Windows of a stream, against sums over the samples of each."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pnml.core.history import BINS, MOST_WINDOWS, SMALLEST_WINDOW, History

Vector = np.ndarray[Any, Any]


def stream(count: int) -> tuple[Vector, ...]:
    rng = np.random.default_rng(count)
    flagged, evidence = rng.random(count) < 0.3, np.cumsum(rng.normal(size=count))
    return 1 - rng.random(count), flagged, evidence, rng.integers(0, 3, count), rng.integers(0, 2, count)


def check(history: History, columns: tuple[Vector, ...]) -> None:
    """Compare every window with the samples in it."""
    p_values, flagged, evidence, prediction, strangest = columns
    assert history.count == len(p_values)
    assert history.length <= MOST_WINDOWS
    for number in range(MOST_WINDOWS):
        here = slice(number * history.window, (number + 1) * history.window)
        assert history.samples[number] == len(p_values[here])
        assert history.flagged[number] == flagged[here].sum()
        bins, _ = np.histogram(p_values[here], BINS, (0, 1))
        assert history.p_values[number].tolist() == bins.tolist()
        for one in range(3):
            mine = prediction[here] == one
            assert history.class_samples[number, one] == mine.sum()
            assert history.class_flagged[number, one] == flagged[here][mine].sum()
        for one in range(2):
            assert history.layer_flagged[number, one] == flagged[here][strangest[here] == one].sum()
        if len(p_values[here]):
            assert history.evidence[number] == evidence[here][-1]
            assert history.peak[number] == evidence[here].max()


@given(st.lists(st.integers(0, 700), max_size=8))
def test_windows_hold_the_sums_of_their_samples_however_these_came(sizes: list[int]) -> None:
    columns, history = stream(sum(sizes)), History(3, 2)
    for part in zip(*(np.split(column, np.cumsum(sizes)) for column in columns), strict=True):
        history.add(*part)
    check(history, columns)


def test_windows_double_when_there_are_too_many() -> None:
    full = MOST_WINDOWS * SMALLEST_WINDOW
    for count, window in ((full, 1), (full + 1, 2), (2 * full, 2), (2 * full + 1, 4), (9 * full, 16)):
        history = History(3, 2)
        history.add(*stream(count))
        assert history.window == window * SMALLEST_WINDOW
        check(history, stream(count))


def test_periods_before_and_since_a_sample_hold_their_samples() -> None:
    columns, history = stream(3000), History(3, 2)
    history.add(*columns)
    p_values, flagged, _, prediction, strangest = columns
    assert history.window == 40
    cuts = {None: [(1, 3000)], 40: [(1, 3000)], 41: [(1, 40), (41, 3000)], 2999: [(1, 2960), (2961, 3000)]}
    for sample, expected in cuts.items():
        found = history.split(sample)
        assert [(one.first, one.last) for one in found] == expected
        for one in found:
            here = slice(one.first - 1, one.last)
            assert (one.samples, one.flagged) == (len(p_values[here]), flagged[here].sum())
            assert one.share == flagged[here].mean()
            assert one.p_values.tolist() == np.histogram(p_values[here], BINS, (0, 1))[0].tolist()
            assert one.class_samples.tolist() == np.bincount(prediction[here], minlength=3).tolist()
            assert one.class_flagged.tolist() == np.bincount(prediction[here][flagged[here]], minlength=3).tolist()
            assert one.layer_flagged.tolist() == np.bincount(strangest[here][flagged[here]], minlength=2).tolist()
            interval = stats.binomtest(one.flagged, one.samples).proportion_ci(0.9, "exact")
            np.testing.assert_allclose(one.interval(0.9), interval, rtol=1e-6)


def test_classes_are_added_where_they_are_seen() -> None:
    history = History(0, 1)
    for prediction in (np.array([0, 0]), np.array([4, 1])):
        history.add(np.array([0.5, 0.5]), np.array([True, False]), np.zeros(2), prediction)
    assert history.class_samples[0].tolist() == [2, 1, 0, 0, 1]
    assert history.class_flagged[0].tolist() == [1, 0, 0, 0, 1]
