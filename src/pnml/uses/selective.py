"""Selective prediction: answer only samples with a score at or below a threshold.

*Coverage* is the share of samples answered, *risk* the share of wrong answers among them, both in percent. A better
score has a lower risk at the same coverage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.metrics import as_scores
from pnml.uses._checks import as_integers

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RiskCoverage(NamedTuple):
    """The risk-coverage curve, with one point for every distinct score.

    Attributes:
        thresholds: the distinct scores, ascending, shape (k,).
        coverage: percentage of samples at or below each threshold, shape (k,), ascending to 100.
        risk: percentage of those samples that are wrong, shape (k,).
    """

    thresholds: NDArray[np.float64]
    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]


def risk_coverage(scores: Any, wrong: Any) -> RiskCoverage:
    """Return the risk-coverage curve; samples of equal score are answered together or not at all.

    Args:
        scores: larger = less trustworthy, shape (n,), of any array library.
        wrong: whether each prediction is wrong, shape (n,).

    >>> curve = risk_coverage([0.1, 0.2, 0.3, 0.3], wrong=[False, True, False, True])
    >>> curve.coverage, curve.risk
    (array([ 25.,  50., 100.]), array([ 0., 50., 50.]))
    """
    thresholds, answered, errors = _cumulative_counts(scores, wrong)
    return RiskCoverage(thresholds, 100 * answered / answered[-1], 100 * errors / answered)


def aurc(scores: Any, wrong: Any) -> float:
    """Return the area under the risk-coverage curve: the mean risk over coverages 1/n, 2/n, ..., 1, in percent.

    The area is averaged over all orders of samples of equal score. A constant score has the error rate as its area.

    >>> aurc([0.1, 0.2, 0.3, 0.4], wrong=[False, False, False, True])  # (0 + 0 + 0 + 1/4) / 4
    6.25
    >>> aurc([0.5, 0.5, 0.5, 0.5], wrong=[False, False, False, True])
    25.0
    """
    _, answered, errors = _cumulative_counts(scores, wrong)
    # Between two thresholds the expected number of errors grows linearly with the number of samples.
    counts = np.arange(1, answered[-1] + 1)
    expected = np.interp(counts, np.append(0, answered), np.append(0, errors))
    return float(100 * np.mean(expected / counts))


def excess_aurc(scores: Any, wrong: Any) -> float:
    """Return the area minus the smallest possible one, that of a score that ranks all errors last.

    It allows models of different accuracy to be compared; 0 is perfect.

    >>> round(excess_aurc([0.1, 0.2, 0.3], wrong=[False, True, False]), 6)  # (0 + 1/2 + 1/3) / 3 − (0 + 0 + 1/3) / 3
    16.666667
    """
    return aurc(scores, wrong) - aurc(wrong, wrong)


def coverage_at_risk(scores: Any, wrong: Any, risk: float) -> float:
    """Return the largest coverage in percent among thresholds with a risk of at most ``risk``; 0 if there is none.

    Args:
        scores: larger = less trustworthy, shape (n,).
        wrong: whether each prediction is wrong, shape (n,).
        risk: the allowed share of wrong answers, such as 0.01.

    >>> coverage_at_risk([0.1, 0.2, 0.3, 0.4], wrong=[False, False, True, True], risk=0.4)
    75.0
    """
    if not 0 <= risk <= 1:
        raise ValueError(
            f"risk is {risk}: expected a share from 0 to 1, such as 0.01 for one wrong answer in a hundred"
        )
    curve = risk_coverage(scores, wrong)
    allowed = curve.coverage[curve.risk <= 100 * risk * (1 + 1e-12)]  # tolerates the rounding of shares such as 0.07
    return float(allowed[-1]) if allowed.size else 0.0


def _cumulative_counts(scores: Any, wrong: Any) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct scores, and the numbers of samples and of wrong samples at or below each."""
    values = as_scores(scores, "scores")
    is_wrong = as_integers(wrong, "wrong", len(values))
    if not np.isin(is_wrong, (0, 1)).all():
        raise ValueError(f"wrong contains {is_wrong[~np.isin(is_wrong, (0, 1))][0]}: expected True (1) or False (0)")
    thresholds, group = np.unique(values, return_inverse=True)
    answered = np.cumsum(np.bincount(group))
    errors = np.cumsum(np.bincount(group, weights=is_wrong)).astype(np.int64)
    return thresholds, answered, errors
