"""Selective prediction: answer only where a score allows it, and see what that costs and gains.

A sample is answered when its score is at or below a threshold. *Coverage* is the share of samples answered, *risk* the
share of the answered ones that are wrong, both in percent. The better the score, the lower the risk at every coverage.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.uses._checks import scores_of, whole_numbers

if TYPE_CHECKING:
    from numpy.typing import NDArray


class RiskCoverage(NamedTuple):
    """Risk against coverage, one point for every threshold that answers something.

    Attributes:
        thresholds: the distinct scores, ascending, shape (k,).
        coverage: the share of samples at or below each threshold, in percent, shape (k,), ascending to 100.
        risk: the share of those that are wrong, in percent, shape (k,).
    """

    thresholds: NDArray[np.float64]
    coverage: NDArray[np.float64]
    risk: NDArray[np.float64]


def risk_coverage(scores: Any, wrong: Any) -> RiskCoverage:
    """Return the risk-coverage curve; samples of equal score are answered or refused together.

    Args:
        scores: larger = less trustworthy, shape (n,), of any array library.
        wrong: whether each prediction is wrong, shape (n,).

    >>> curve = risk_coverage([0.1, 0.2, 0.3, 0.3], wrong=[False, True, False, True])
    >>> curve.coverage, curve.risk
    (array([ 25.,  50., 100.]), array([ 0., 50., 50.]))
    """
    thresholds, answered, errors = _sweep(scores, wrong)
    return RiskCoverage(thresholds, 100 * answered / answered[-1], 100 * errors / answered)


def aurc(scores: Any, wrong: Any) -> float:
    """Return the area under the risk-coverage curve: the mean risk over coverages 1/n, 2/n, ..., 1, in percent.

    Samples of equal score come in every order equally often, so that the result does not depend on theirs. A score
    that knows nothing gets the error rate.

    >>> aurc([0.1, 0.2, 0.3, 0.4], wrong=[False, False, False, True])  # (0 + 0 + 0 + 1/4) / 4
    6.25
    >>> aurc([0.5, 0.5, 0.5, 0.5], wrong=[False, False, False, True])
    25.0
    """
    _, answered, errors = _sweep(scores, wrong)
    # Between two thresholds the expected number of errors rises evenly with every sample.
    counts = np.arange(1, answered[-1] + 1)
    expected = np.interp(counts, np.append(0, answered), np.append(0, errors))
    return float(100 * np.mean(expected / counts))


def excess_aurc(scores: Any, wrong: Any) -> float:
    """Return how far the area lies above the best possible one, that of a score by which all errors come last.

    Models of different accuracy can be compared by it; 0 is perfect.

    >>> round(excess_aurc([0.1, 0.2, 0.3], wrong=[False, True, False]), 6)  # (0 + 1/2 + 1/3) / 3 − (0 + 0 + 1/3) / 3
    16.666667
    """
    return aurc(scores, wrong) - aurc(wrong, wrong)


def coverage_at_risk(scores: Any, wrong: Any, risk: float) -> float:
    """Return the largest coverage of a threshold whose risk is at most ``risk``, in percent; 0 where there is none.

    Args:
        scores: larger = less trustworthy, shape (n,).
        wrong: whether each prediction is wrong, shape (n,).
        risk: the share of answers that may be wrong, such as 0.01.

    >>> coverage_at_risk([0.1, 0.2, 0.3, 0.4], wrong=[False, False, True, True], risk=0.4)
    75.0
    """
    if not 0 <= risk <= 1:
        raise ValueError(
            f"risk is {risk}: expected a share from 0 to 1, such as 0.01 for one wrong answer in a hundred"
        )
    curve = risk_coverage(scores, wrong)
    allowed = curve.coverage[curve.risk <= 100 * risk * (1 + 1e-12)]  # the slack keeps 0.07 from losing to rounding
    return float(allowed[-1]) if allowed.size else 0.0


def _sweep(scores: Any, wrong: Any) -> tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64]]:
    """Give the distinct scores, and how many samples, and how many wrong ones, lie at or below each."""
    values = scores_of(scores)
    mistakes = whole_numbers(wrong, "wrong", len(values))
    if not np.isin(mistakes, (0, 1)).all():
        raise ValueError(f"wrong holds {mistakes[~np.isin(mistakes, (0, 1))][0]}: expected True (1) or False (0)")
    thresholds, group = np.unique(values, return_inverse=True)
    answered = np.cumsum(np.bincount(group))
    errors = np.cumsum(np.bincount(group, weights=mistakes)).astype(np.int64)
    return thresholds, answered, errors
