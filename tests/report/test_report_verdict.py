"""Test the answer of the page: what was expected, what was seen, and whether the difference is more than chance."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pnml.core.calibration import Threshold, calibrate
from pnml.report import Report, ScoredSet
from pnml.report.page import render
from pnml.report.verdict import Verdict, misses, verdict


def report_of(new: Any, calibration: Threshold | None, role: Any = "unlabelled", **columns: Any) -> Report:
    one = ScoredSet(name="new", role=role, regret=np.asarray(new), **columns)
    return Report(title="", facts={}, sets=(one,), calibration=calibration)


def answer(report: Report) -> Verdict:
    given_answer = verdict(report, report.sets[0])
    assert given_answer is not None
    return given_answer


@settings(deadline=None, max_examples=50)
@given(
    st.integers(0, 400), st.integers(1, 400), st.integers(60, 500), st.sampled_from([0.05, 0.1, 0.3]), st.integers(0, 9)
)
def test_verdict_compares_two_intervals(above: int, below: int, known: int, rate: float, seed: int) -> None:
    """Against SciPy: Clopper and Pearson for the share that was seen, Beta for the rate to be expected."""
    threshold = calibrate(np.random.default_rng(seed).exponential(size=known), false_alarm_rate=rate)
    one = answer(report_of(np.repeat([threshold.value * 1.5, threshold.value / 2], [above, below]), threshold))
    seen = stats.binomtest(above, above + below).proportion_ci(0.95)
    ranks = sum(position / (known + 1) <= rate * (1 + 1e-12) for position in range(1, known + 1))
    low, high = stats.beta(ranks, known + 1 - ranks).interval(0.95)
    assert one.kind == ("more" if seen.low > high else "fewer" if seen.high < low else "same")
    for part in (
        f"{above:,} of {above + below:,} samples",
        f"{seen.low:.1%} to {seen.high:.1%}",
        f"{low:.1%} to {high:.1%}",
    ):
        assert part in one.details
    assert one.sentence.startswith(f"{100 * rate:g}% expected, {above / (above + below):.1%} flagged: ")


@pytest.mark.parametrize("by", [None, "prediction"])
def test_data_like_the_calibration_set_is_rarely_called_other_data(by: Any) -> None:
    rng, kinds = np.random.default_rng(0), []
    for _ in range(300):
        classes = rng.integers(0, 4, 800)
        regret = rng.exponential(size=800) * (1 + classes)
        threshold = calibrate(regret[:500], predictions=classes[:500], by=by, false_alarm_rate=0.1)
        kinds.append(answer(report_of(regret[500:], threshold, prediction=classes[500:])).kind)
    assert kinds.count("same") >= 0.95 * len(kinds)


@pytest.mark.parametrize(
    ("new", "source", "kind"),
    [
        (np.full(50, 2.0), "held-out", "more"),
        (np.zeros(400), "held-out", "fewer"),
        ([9.0], "held-out", "same"),
        (np.full(50, 2.0), "leave-one-out", "unsure"),
        (np.full(50, 2.0), "repeated", "unsure"),
    ],
)
def test_verdict_depends_on_the_count_and_on_the_calibration(new: Any, source: Any, kind: str) -> None:
    assert answer(report_of(new, calibrate(np.arange(99) / 99, source=source))).kind == kind


def test_without_calibration_nothing_is_expected() -> None:
    report = report_of([0.1, 0.9], None, is_ood=[False, True])
    assert answer(report).sentence == "50.0% flagged."
    assert "How many to expect is not known" in answer(report).details
    bare = report_of([0.1], None)
    assert verdict(bare, bare.sets[0]) is None
    assert 'class="verdict' not in render(bare)


def test_decisions_by_class_make_the_verdict() -> None:
    """A regret that is common in one class is strange in another."""
    rng = np.random.default_rng(1)
    classes = np.repeat([0, 1], 200)
    threshold = calibrate(rng.uniform(size=400) + classes, predictions=classes, by="prediction")
    new = np.full(200, 1.5)
    assert answer(report_of(new, threshold, prediction=np.ones(200))).kind == "fewer"
    assert answer(report_of(new, threshold, prediction=np.zeros(200))).kind == "more"
    with pytest.raises(ValueError, match="the threshold depends on the predicted class: pass predictions"):
        answer(report_of(new, threshold))


def test_misses_are_counted_and_explained() -> None:
    rng = np.random.default_rng(2)
    known, new = rng.exponential(size=499), 1.5 * rng.exponential(size=300)
    threshold = calibrate(known, false_alarm_rate=0.1)
    report = report_of(new, threshold, role="out")
    missed = new[new <= np.sort(known)[449]]
    p_value = np.array([(1 + (known >= value).sum()) / 500 for value in missed])
    text = misses(report, report.sets[0])
    assert text.startswith(f"{len(missed)} of 300 are missed. ")
    assert f"{np.median(p_value):.0%} or more of the calibration samples" in text
    assert text.endswith(f"Twice the false alarms, 20%, would catch {(p_value <= 0.2).sum()} of them.")
    assert text in render(report)
    for values, role, ending in (
        (new, "unlabelled", ""),
        ([99.0], "out", ""),
        (np.zeros(3), "out", "catch none of them."),
    ):
        other = report_of(values, threshold, role=role)
        said = misses(other, other.sets[0])
        assert said.endswith(ending)
        assert bool(said) == bool(ending)
