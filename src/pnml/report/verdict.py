"""The answer of the page: how many samples are flagged, how many were to be expected, and what the difference says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from pnml.backend.arrays import to_numpy
from pnml.core.conformal import observed_interval
from pnml.report.by_class import CONFIDENCE, as_range, expected_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.core.calibration import Threshold
    from pnml.report.model import Report, ScoredSet

_WORDS = {
    "more": "this is not the data you calibrated on",
    "fewer": "fewer than of the data you calibrated on",
    "same": "consistent with the data you calibrated on",
    "unsure": "more than expected, but the threshold was set on training rows, so this may be data of the same kind",
}

UNDECIDED = (
    "No threshold is set. The first one on the page flags 5% of these samples, whatever they are; pnml calibrate sets "
    "one that has a meaning."
)
"""What is said instead of an answer where nothing was decided."""


class Verdict(NamedTuple):
    """What the share of flagged samples says.

    Attributes:
        kind: "more" or "fewer" than to be expected of the calibration data, the "same", "unsure" where more are flagged
            but the threshold was not set on held-out data, "unknown" without a calibration.
        sentence: the answer, in one sentence.
        details: the numbers behind it.
    """

    kind: Literal["more", "fewer", "same", "unsure", "unknown"]
    sentence: str
    details: str


def decisions(report: Report, scored: ScoredSet) -> NDArray[np.bool_] | None:
    """Return which samples are flagged, shape (n,): as given, or by the report's threshold; None without one."""
    if scored.is_ood is not None:
        return scored.is_ood
    if report.calibration is not None:
        return to_numpy(report.calibration.is_ood(scored.regret, scored.prediction), np.bool_)
    return None if report.threshold is None else scored.regret > report.threshold


def p_values(report: Report, scored: ScoredSet) -> NDArray[np.float64] | None:
    """Return the p-values, shape (n,): as given, or by the report's calibration; None without one."""
    if scored.p_value is not None or report.calibration is None:
        return scored.p_value
    return to_numpy(report.calibration.p_value(scored.regret, scored.prediction), np.float64)


def verdict(report: Report, scored: ScoredSet) -> Verdict | None:
    """Return what the share of flagged samples says; None without a threshold.

    Samples are called other data only if the confidence interval of their flagged share (Clopper and Pearson) lies
    beyond the interval in which the false-alarm rate of the threshold lies.

    >>> from pnml.core.calibration import calibrate
    >>> from pnml.report import Report, ScoredSet
    >>> new = ScoredSet(name="new", role="unlabelled", regret=np.arange(100) / 50)
    >>> report = Report(title="", facts={}, sets=(new,), calibration=calibrate(np.arange(99) / 100))
    >>> verdict(report, new).sentence
    '5% expected, 52.0% flagged: this is not the data you calibrated on.'
    """
    decided = decisions(report, scored)
    if decided is None:
        return None
    flagged, count = int(decided.sum()), len(scored)
    calibration = report.calibration
    confidence = CONFIDENCE if calibration is None else calibration.confidence
    seen = observed_interval(flagged, count, confidence)
    details = f"{flagged:,} of {count:,} samples; with {_percent(confidence)} confidence the share is {as_range(seen)}."
    share = f"{flagged / count:.1%} flagged"
    if calibration is None:
        return Verdict("unknown", f"{share}.", f"{details} How many to expect is not known without a calibration.")
    kind = _kind(seen, calibration)
    expected = (
        f"Of data like the {calibration.count:,} calibration samples, this threshold flags "
        f"{as_range(expected_interval(calibration))}."
    )
    sentence = f"{_percent(calibration.false_alarm_rate)} expected, {share}: {_WORDS[kind]}."
    return Verdict(kind, sentence, f"{details} {expected}")


def is_undecided(report: Report) -> bool:
    """Return whether nothing says which samples are flagged, so that the page starts with a threshold of its own."""
    if not report.sets or report.ind_set is not None:
        return False
    return all(decisions(report, one) is None for one in report.sets)


def misses(report: Report, scored: ScoredSet) -> str:
    """Return why out-of-distribution samples are not flagged; empty if all are, or without a calibration.

    >>> from pnml.core.calibration import calibrate
    >>> from pnml.report import Report, ScoredSet
    >>> new = ScoredSet(name="new", role="out", regret=[0.6, 0.9, 0.91, 0.99])
    >>> print(misses(Report(title="", facts={}, sets=(new,), calibration=calibrate(np.arange(99) / 100)), new))
    3 of 4 are missed. To the network they are like what it knows: for half of them, 10% or more of the calibration
    samples have a regret at least as large. Twice the false alarms, 10%, would catch 2 of them.
    """
    decided, p_value, calibration = decisions(report, scored), p_values(report, scored), report.calibration
    if scored.role != "out" or decided is None or p_value is None or calibration is None or decided.all():
        return ""
    missed = p_value[~decided]
    twice = 2 * calibration.false_alarm_rate
    more = f"{int((missed <= twice).sum()):,}" if (missed <= twice).any() else "none"
    return (
        f"{len(missed):,} of {len(scored):,} are missed. To the network they are like what it knows: for half of them, "
        f"{np.median(missed):.0%} or more of the calibration samples have a regret at least as large. Twice the false "
        f"alarms, {_percent(twice)}, would catch {more} of them."
    )


def _kind(seen: tuple[float, float], calibration: Threshold) -> Literal["more", "fewer", "same", "unsure"]:
    low, high = expected_interval(calibration)
    if seen[0] > high:
        return "more" if calibration.source == "held-out" else "unsure"
    return "fewer" if seen[1] < low else "same"


def _percent(share: float) -> str:
    return f"{100 * share:.4g}%"
