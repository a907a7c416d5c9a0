"""The data of the page's charts, whose size does not depend on the number of samples.

The slider moves over a grid of thresholds. The numbers of samples that each threshold keeps are counted here, so that
the TPR and TNR on the page are exact. Curves are subsampled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.subspace import eigenvalue_tolerance
from pnml.metrics import tnr_curve
from pnml.report.tables import METRICS, metrics_by_set
from pnml.report.verdict import p_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.core.calibration import Threshold
    from pnml.report.model import Report, ScoredSet
    from pnml.report.tables import MetricsPair

STEPS = 400
"""Number of thresholds of the slider, in addition to 0 and the initial one."""
BINS = 60
P_BINS = 20
ROC_POINTS = 300
SPECTRUM_POINTS = 600
_DEFAULT_TPR = 0.95
_SLACK = 1e-12  # keeps 0.15 * 20 from going up a bin by rounding
_DECADES = 8  # the largest range of the axis below the largest regret


def initial_threshold(report: Report) -> tuple[float, str]:
    """Return the initial threshold and a description of its origin."""
    value = report.threshold if report.calibration is None else report.calibration.value
    if value is not None:
        return value, "calibrated"
    ind = report.ind_set
    regret = np.sort(np.concatenate([one.regret for one in report.sets]) if ind is None else ind.regret)
    value = float(regret[np.searchsorted(np.arange(1, len(regret) + 1) / len(regret), _DEFAULT_TPR)])
    return value, f"flags 5% of {'all samples' if ind is None else ind.name}"


def page_data(report: Report) -> dict[str, Any]:
    """Return the data of the page's script, ready for JSON."""
    if not report.sets:
        return {"sets": []}
    start, origin = initial_threshold(report)
    calibration = report.calibration
    known = [] if calibration is None else [calibration.scores]
    edges = _edges(np.concatenate([*(one.regret for one in report.sets), *known]), start)
    grid = np.unique(np.concatenate([[0.0, start], np.geomspace(edges[0], edges[-1], STEPS)[:-1], edges[-1:]]))
    pairs = metrics_by_set(report)
    return {
        "edges": edges.tolist(),
        "grid": grid.tolist(),
        "start": int(np.searchsorted(grid, start)),
        "origin": origin,
        "names": {"pnml": report.pnml_name, "baseline": report.baseline_name},
        "sets": [_set_data(report, one, grid, edges, pairs.get(one.name)) for one in report.sets],
        "calibration": None if calibration is None else _calibration_data(calibration, grid, edges),
        "spectrum": None if report.spectrum is None else _spectrum_data(report.spectrum),
    }


def _edges(regret: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Return bin edges on a log axis from the 0.001 quantile on, so that a few small regrets do not stretch it."""
    positive = regret[regret > 0]
    high = max(float(regret.max()), threshold)
    if positive.size == 0:
        high = high or 1.0
        positive = np.asarray([high / 10])
    low = max(float(np.quantile(positive, 0.001, method="lower")), high * 10**-_DECADES)
    edges = np.geomspace(low if low < high else high / 10, high, BINS + 1)
    edges[-1] = high  # exactly the largest regret, not rounded
    return edges


def _set_data(
    report: Report,
    scored: ScoredSet,
    grid: NDArray[np.float64],
    edges: NDArray[np.float64],
    pair: MetricsPair | None,
) -> dict[str, Any]:
    ind = report.ind_set
    data: dict[str, Any] = {"name": scored.name, "role": scored.role, **_counts(scored.regret, grid, edges)}
    if report.has_p_values:
        data["pBins"] = _p_bins(p_values(report, scored))
    if report.has_depths:
        columns = [depth.column for depth in report.depths]
        data["flaggedBy"] = None if scored.strangest is None else _flagged_by(scored, grid, columns)
    if pair is not None and ind is not None:
        data["metrics"] = {
            name: metrics and {metric: getattr(metrics, metric) for metric in METRICS}
            for name, metrics in pair._asdict().items()
        }
        data["roc"] = {"pnml": _roc_data(ind.regret, scored.regret)}
        if pair.baseline is not None:
            data["roc"]["baseline"] = _roc_data(ind.baseline, scored.baseline)
    return data


def _flagged_by(scored: ScoredSet, grid: NDArray[np.float64], columns: list[int]) -> list[list[int]]:
    """Return how many flagged samples are strangest in each of the layers, for every threshold."""
    counts = []
    for column in columns:
        regret = np.sort(scored.regret[scored.strangest == column])
        counts.append((len(regret) - np.searchsorted(regret, grid, side="right")).tolist())
    return counts


def _calibration_data(calibration: Threshold, grid: NDArray[np.float64], edges: NDArray[np.float64]) -> dict[str, Any]:
    counts = _counts(calibration.scores, grid, edges)
    return {"name": "Calibration", "role": "calibration", "rate": calibration.false_alarm_rate, **counts}


def _counts(regret: NDArray[np.float64], grid: NDArray[np.float64], edges: NDArray[np.float64]) -> dict[str, Any]:
    """Return how many samples each threshold keeps and each bin holds."""
    bins, _ = np.histogram(np.clip(regret, edges[0], edges[-1]), edges)
    return {
        "count": len(regret),
        "median": float(np.median(regret)),
        "kept": np.searchsorted(np.sort(regret), grid, side="right").tolist(),
        "bins": bins.tolist(),
    }


def _p_bins(values: NDArray[np.float64] | None) -> list[int] | None:
    """Return how many p-values lie in each of ``P_BINS`` intervals of equal length, the right end included."""
    if values is None:
        return None
    bins = np.ceil(values * P_BINS * (1 - _SLACK)).astype(np.int64) - 1
    counts: list[int] = np.bincount(bins.clip(0, P_BINS - 1), minlength=P_BINS).tolist()
    return counts


def _roc_data(ind: Any, ood: Any) -> dict[str, list[float]]:
    """Return FPR and TPR in percent at no more than ``ROC_POINTS`` thresholds, evenly spaced along the curve."""
    curve = tnr_curve(ind, ood)
    along = curve.tpr + 100 - curve.tnr
    rows = np.unique(np.searchsorted(along, np.linspace(0, along[-1], ROC_POINTS)).clip(max=len(along) - 1))
    return {"fpr": (100 - curve.tnr[rows]).round(3).tolist(), "tpr": curve.tpr[rows].round(3).tolist()}


def _spectrum_data(eigenvalues: NDArray[np.float64]) -> dict[str, Any]:
    """Return eigenvalues above rounding error with their indices from 1, evenly subsampled, and their numbers."""
    nonzero = np.flatnonzero(eigenvalues > eigenvalue_tolerance(eigenvalues))
    rows = nonzero[np.unique(np.linspace(0, len(nonzero) - 1, min(len(nonzero), SPECTRUM_POINTS)).astype(int))]
    values = [float(f"{value:.4g}") for value in eigenvalues[rows]]
    return {"index": (rows + 1).tolist(), "value": values, "rank": len(nonzero), "count": len(eigenvalues)}
