"""Metrics of out-of-distribution (OOD) detection, all in percent.

Every function takes the scores of in-distribution (IND) samples and those of OOD samples, one number per sample, as
arrays of any library. Scores must grow with OOD-ness, as the regret does.

>>> from pnml import metrics
>>> result = metrics.evaluate(ind=[0.1, 0.2, 0.3, 0.6], ood=[0.5, 0.7, 0.8])
>>> round(result.auroc, 1), round(result.tnr_at_tpr95, 1)
(91.7, 66.7)

A threshold *keeps* the samples with a score at or below it and *flags* the others. IND is the positive class: TPR is
the share of IND samples kept, TNR the share of OOD samples flagged. The two metrics with OOD as the positive class
have names that end in ``out`` or ``ood``.

Samples of equal score are kept or flagged together. Infinite scores are allowed; NaN raises a ``ValueError``.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.backend.arrays import to_numpy

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

__all__ = [
    "Curve",
    "Metrics",
    "aupr_in",
    "aupr_out",
    "auroc",
    "average",
    "detection_accuracy",
    "evaluate",
    "fpr_at_tpr_ood",
    "tnr_at_tpr",
    "tnr_curve",
]

_SLACK = 1e-12  # keeps 100 * 0.55 from going up a threshold by rounding


@dataclass(frozen=True)
class Metrics:
    """The metrics of one IND-OOD pair, in percent; each is documented in the function of the same name."""

    auroc: float
    tnr_at_tpr95: float
    detection_accuracy: float
    aupr_in: float
    aupr_out: float
    fpr_at_tpr95_ood: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if not 0 <= value <= 100:
                raise ValueError(f"{field.name} is {value}: expected a percentage from 0 to 100")


def evaluate(ind: Any, ood: Any) -> Metrics:
    """Compute all metrics from a single sort of the scores.

    Args:
        ind: scores of the in-distribution samples, shape (n,).
        ood: scores of the out-of-distribution samples, shape (m,).

    >>> evaluate(ind=[0.1, 0.2, 0.3, 0.6], ood=[0.5, 0.7, 0.8]).tnr_at_tpr95
    66.66666666666667
    """
    sweep = _sweep(ind, ood)
    swapped = sweep.swap_classes()
    return Metrics(
        auroc=sweep.auroc(),
        tnr_at_tpr95=sweep.tnr_at_tpr(0.95),
        detection_accuracy=sweep.detection_accuracy(),
        aupr_in=sweep.average_precision(),
        aupr_out=swapped.average_precision(),
        fpr_at_tpr95_ood=swapped.fpr_at_tpr(0.95),
    )


def average(metrics: Iterable[Metrics]) -> Metrics:
    """Return the mean of each metric, for example over several seeds.

    >>> average([evaluate([1, 2], [3, 4]), evaluate([3, 4], [1, 2])]).auroc
    50.0
    """
    metrics = list(metrics)
    if not metrics:
        raise ValueError("expected at least one Metrics to average, got none")
    names = [field.name for field in fields(Metrics)]
    return Metrics(**{name: float(np.mean([getattr(m, name) for m in metrics])) for name in names})


def auroc(ind: Any, ood: Any) -> float:
    """Return the area under the ROC curve: the share of IND-OOD pairs in which OOD scores higher, ties as half.

    >>> auroc(ind=[1, 2, 3], ood=[3, 4])
    91.66666666666667
    """
    return _sweep(ind, ood).auroc()


def tnr_at_tpr(ind: Any, ood: Any, tpr: float = 0.95) -> float:
    """Return the TNR at the smallest threshold that keeps at least a share ``tpr`` of IND.

    ``100 - tnr_at_tpr(ind, ood)`` is called FPR95 where IND is the positive class.

    >>> tnr_at_tpr(ind=[1, 2, 3, 4], ood=[3, 4, 5, 6], tpr=0.75)
    75.0
    """
    return _sweep(ind, ood).tnr_at_tpr(_checked_tpr(tpr))


def detection_accuracy(ind: Any, ood: Any) -> float:
    """Return the largest (TPR + TNR) / 2 over all thresholds, which is at least 50.

    >>> detection_accuracy(ind=[1, 2, 3, 4], ood=[4, 5])
    87.5
    """
    return _sweep(ind, ood).detection_accuracy()


def aupr_in(ind: Any, ood: Any) -> float:
    """Return the average precision with IND as the positive class.

    >>> aupr_in(ind=[1, 4], ood=[2, 3])
    75.0
    """
    return _sweep(ind, ood).average_precision()


def aupr_out(ind: Any, ood: Any) -> float:
    """Return the average precision with OOD as the positive class.

    >>> aupr_out(ind=[1, 3], ood=[2])
    50.0
    """
    return _sweep(ind, ood).swap_classes().average_precision()


def fpr_at_tpr_ood(ind: Any, ood: Any, tpr: float = 0.95) -> float:
    """Return the FPR at a given TPR with OOD as the positive class.

    It is the share of IND at or above the largest threshold that has at least a share ``tpr`` of OOD at or above it.

    >>> fpr_at_tpr_ood(ind=[1, 2, 3, 4], ood=[3, 4, 5, 6], tpr=0.75)
    25.0
    """
    return _sweep(ind, ood).swap_classes().fpr_at_tpr(_checked_tpr(tpr))


class Curve(NamedTuple):
    """TPR and TNR at every threshold.

    Attributes:
        thresholds: −∞ and every distinct score, ascending, shape (k,).
        tpr: percentage of IND at or below each threshold, shape (k,), ascending from 0 to 100.
        tnr: percentage of OOD above each threshold, shape (k,), descending from 100 to 0.
    """

    thresholds: NDArray[np.float64]
    tpr: NDArray[np.float64]
    tnr: NDArray[np.float64]

    def threshold_at_tpr(self, tpr: float = 0.95) -> float:
        """Return the smallest threshold that keeps at least a share ``tpr`` of IND."""
        needed = 100 * _checked_tpr(tpr) * (1 - _SLACK)
        return float(self.thresholds[np.searchsorted(self.tpr, needed)])

    def best_threshold(self) -> float:
        """Return the smallest threshold that attains the detection accuracy, the largest (TPR + TNR) / 2."""
        return float(self.thresholds[np.argmax(self.tpr + self.tnr)])


def tnr_curve(ind: Any, ood: Any) -> Curve:
    """Return TPR and TNR at every threshold.

    >>> curve = tnr_curve(ind=[1, 2, 3, 4], ood=[4, 5])
    >>> curve.tpr, curve.tnr
    (array([  0.,  25.,  50.,  75., 100., 100.]), array([100., 100., 100., 100.,  50.,   0.]))
    >>> curve.best_threshold(), curve.threshold_at_tpr(0.95)
    (3.0, 4.0)
    """
    sweep = _sweep(ind, ood)
    return Curve(
        thresholds=np.append(-np.inf, np.unique(np.concatenate([as_scores(ind, "ind"), as_scores(ood, "ood")]))),
        tpr=100 * sweep.positives / sweep.positives[-1],
        tnr=100 * (sweep.negatives[-1] - sweep.negatives) / sweep.negatives[-1],
    )


@dataclass(frozen=True)
class _Sweep:
    """Numbers of positives and negatives kept at thresholds that ascend over the distinct scores, from none to all."""

    positives: NDArray[np.int64]
    negatives: NDArray[np.int64]

    def swap_classes(self) -> _Sweep:
        """Return the sweep with descending thresholds and the roles of the two classes exchanged."""
        return _Sweep(
            positives=(self.negatives[-1] - self.negatives)[::-1],
            negatives=(self.positives[-1] - self.positives)[::-1],
        )

    def auroc(self) -> float:
        wins_twice = np.sum(np.diff(self.negatives) * (self.positives[:-1] + self.positives[1:]))
        return float(100 * wins_twice / (2 * self.positives[-1] * self.negatives[-1]))

    def tnr_at_tpr(self, tpr: float) -> float:
        first = np.searchsorted(self.positives / self.positives[-1], tpr)
        total = self.negatives[-1]
        return float(100 * (total - self.negatives[first]) / total)

    def fpr_at_tpr(self, tpr: float) -> float:
        first = np.searchsorted(self.positives / self.positives[-1], tpr)
        return float(100 * self.negatives[first] / self.negatives[-1])

    def detection_accuracy(self) -> float:
        n, m = self.positives[-1], self.negatives[-1]
        return float(100 * np.max(self.positives * m + (m - self.negatives) * n) / (2 * n * m))

    def average_precision(self) -> float:
        precision = self.positives[1:] / (self.positives[1:] + self.negatives[1:])
        return float(100 * np.sum(np.diff(self.positives) * precision) / self.positives[-1])


def _sweep(ind: Any, ood: Any) -> _Sweep:
    ind, ood = as_scores(ind, "ind"), as_scores(ood, "ood")
    scores = np.concatenate([ind, ood])
    order = np.argsort(scores)
    scores = scores[order]
    ends = np.append(np.flatnonzero(scores[1:] != scores[:-1]), len(scores) - 1)
    positives = np.cumsum(order < len(ind), dtype=np.int64)[ends]
    negatives = ends + 1 - positives
    return _Sweep(positives=np.append(0, positives), negatives=np.append(0, negatives))


def as_scores(values: Any, name: str) -> NDArray[np.float64]:
    """Return scores as float64 of shape (n,); raise a ``ValueError`` that uses ``name`` if there are none or NaN."""
    scores = to_numpy(values)
    if scores.ndim != 1 or scores.size == 0:
        raise ValueError(f"{name} has shape {scores.shape}: expected one score per sample, shape (n,) with n > 0")
    missing = np.flatnonzero(np.isnan(scores))
    if missing.size:
        raise ValueError(
            f"{name}[{missing[0]}] is NaN ({missing.size} of {scores.size} scores are): "
            "expected numbers; find the cause of the NaN or drop the sample"
        )
    return scores


def _checked_tpr(tpr: float) -> float:
    if not 0 < tpr <= 1:
        raise ValueError(f"tpr is {tpr}: expected a share above 0 and at most 1, such as 0.95")
    return tpr
