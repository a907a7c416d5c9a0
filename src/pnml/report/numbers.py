"""The numbers behind the page, few enough to be carried in it whatever the number of samples.

Thresholds are those of a grid: how many samples each of them keeps is counted here, so that the page's TPR and TNR are
exact. Curves are thinned to exact points of theirs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.metrics import Metrics, evaluate, tnr_curve

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.report.model import Report, ScoredSet

STEPS = 400
"""How many thresholds the slider reaches, apart from 0 and the one it starts at."""
BINS = 60
ROC_POINTS = 300
SPECTRUM_POINTS = 600
_KEPT = 0.95
_DECADES = 8  # how far below the largest regret the axis may reach


class Pair(NamedTuple):
    """The metrics of one OOD set against the in-distribution set; None where it was not scored by the baseline."""

    pnml: Metrics
    baseline: Metrics | None


def pairs(report: Report) -> dict[str, Pair]:
    """Evaluate every OOD set against the in-distribution set, by name; none without an in-distribution set."""
    ind = report.inside
    if ind is None:
        return {}
    found = {}
    for out in report.outside:
        alone = None
        if ind.baseline is not None and out.baseline is not None:
            alone = evaluate(ind.baseline, out.baseline)
        found[out.name] = Pair(evaluate(ind.regret, out.regret), alone)
    return found


def start_threshold(report: Report) -> tuple[float, str]:
    """Give the threshold to start at and say where it comes from."""
    if report.threshold is not None:
        return report.threshold, "calibrated"
    ind = report.inside
    regret = np.sort(np.concatenate([one.regret for one in report.sets]) if ind is None else ind.regret)
    value = float(regret[np.searchsorted(np.arange(1, len(regret) + 1) / len(regret), _KEPT)])
    return value, f"keeps 95% of {'all samples' if ind is None else ind.name}"


def numbers(report: Report) -> dict[str, Any]:
    """Give what the page's script draws from, as JSON can hold it."""
    if not report.sets:
        return {"sets": []}
    start, origin = start_threshold(report)
    edges = _edges(np.concatenate([one.regret for one in report.sets]), start)
    grid = np.unique(np.concatenate([[0.0, start], np.geomspace(edges[0], edges[-1], STEPS)[:-1], edges[-1:]]))
    found = pairs(report)
    return {
        "edges": edges.tolist(),
        "grid": grid.tolist(),
        "start": int(np.searchsorted(grid, start)),
        "origin": origin,
        "names": {"pnml": report.pnml_name, "baseline": report.baseline_name},
        "sets": [_set(one, grid, edges, found.get(one.name), report.inside) for one in report.sets],
        "spectrum": None if report.spectrum is None else _spectrum(report.spectrum),
    }


def _edges(regret: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Give bin edges on a log axis that leave out the lowest thousandth, so that few samples do not stretch it."""
    positive = regret[regret > 0]
    high = max(float(regret.max()), threshold)
    if positive.size == 0:
        high = high or 1.0
        positive = np.asarray([high / 10])
    low = max(float(np.quantile(positive, 0.001, method="lower")), high * 10**-_DECADES)
    edges = np.geomspace(low if low < high else high / 10, high, BINS + 1)
    edges[-1] = high  # the largest regret itself, without rounding
    return edges


def _set(
    scored: ScoredSet,
    grid: NDArray[np.float64],
    edges: NDArray[np.float64],
    pair: Pair | None,
    ind: ScoredSet | None,
) -> dict[str, Any]:
    kept = np.searchsorted(np.sort(scored.regret), grid, side="right")
    bins, _ = np.histogram(np.clip(scored.regret, edges[0], edges[-1]), edges)
    held: dict[str, Any] = {
        "name": scored.name,
        "role": scored.role,
        "count": len(scored),
        "median": float(np.median(scored.regret)),
        "kept": kept.tolist(),
        "bins": bins.tolist(),
    }
    if pair is not None and ind is not None:
        held["metrics"] = {"pnml": _three(pair.pnml), "baseline": pair.baseline and _three(pair.baseline)}
        held["roc"] = {"pnml": _roc(ind.regret, scored.regret)}
        if pair.baseline is not None:
            held["roc"]["baseline"] = _roc(ind.baseline, scored.baseline)
    return held


def _three(metrics: Metrics) -> dict[str, float]:
    return {name: getattr(metrics, name) for name in ("auroc", "tnr_at_tpr95", "detection_accuracy")}


def _roc(ind: Any, ood: Any) -> dict[str, list[float]]:
    """Give FPR and TPR in percent at no more than ``ROC_POINTS`` thresholds, evenly spaced along the curve."""
    curve = tnr_curve(ind, ood)
    along = curve.tpr + 100 - curve.tnr
    rows = np.unique(np.searchsorted(along, np.linspace(0, along[-1], ROC_POINTS)).clip(max=len(along) - 1))
    return {"fpr": (100 - curve.tnr[rows]).round(3).tolist(), "tpr": curve.tpr[rows].round(3).tolist()}


def _spectrum(eigenvalues: NDArray[np.float64]) -> dict[str, Any]:
    """Give the eigenvalues above rounding with their ranks from 1, thinned evenly, and how many there are."""
    tolerance = max(len(eigenvalues), 32) * np.finfo(np.float64).eps * eigenvalues.max()
    seen = np.flatnonzero(eigenvalues > tolerance)
    rows = seen[np.unique(np.linspace(0, len(seen) - 1, min(len(seen), SPECTRUM_POINTS)).astype(int))]
    values = [float(f"{value:.4g}") for value in eigenvalues[rows]]
    return {"index": (rows + 1).tolist(), "value": values, "seen": len(seen), "count": len(eigenvalues)}
