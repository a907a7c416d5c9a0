"""What was decided about the samples of a set, and their p-values: as given, or by the calibration of the report."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.backend.arrays import to_numpy

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.report.model import Report, ScoredSet


def decisions(report: Report, scored: ScoredSet) -> NDArray[np.bool_] | None:
    """Return which samples are flagged, shape (n,); None without a threshold.

    >>> from pnml.report import Report, ScoredSet
    >>> new = ScoredSet(name="new", role="unlabelled", regret=[0.1, 0.7])
    >>> decisions(Report(title="", facts={}, sets=(new,), threshold=0.5), new)
    array([False,  True])
    """
    if scored.is_ood is not None:
        return scored.is_ood
    if report.calibration is not None:
        return to_numpy(report.calibration.is_ood(scored.regret, scored.prediction), np.bool_)
    return None if report.threshold is None else scored.regret > report.threshold


def p_values(report: Report, scored: ScoredSet) -> NDArray[np.float64] | None:
    """Return the p-values, shape (n,); None where they are neither given nor to be had from a calibration.

    >>> from pnml.core.calibration import calibrate
    >>> from pnml.report import Report, ScoredSet
    >>> new = ScoredSet(name="new", role="unlabelled", regret=[0.1, 0.97])
    >>> known = calibrate(np.arange(99) / 100)
    >>> p_values(Report(title="", facts={}, sets=(new,), calibration=known), new)
    array([0.9 , 0.03])
    """
    if scored.p_value is not None or report.calibration is None:
        return scored.p_value
    return to_numpy(report.calibration.p_value(scored.regret, scored.prediction), np.float64)
