"""Histograms of the baseline score and of the regret over in-distribution and OOD samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.metrics import tnr_at_tpr, tnr_curve
from pnml.report.labels import label
from pnml_bench.figures._canvas import clip_to, log_edges, new_figure, plain_ticks

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pnml_bench.figures._comparison import Comparison, Scores

Vector = np.ndarray[Any, Any]

_BINS = 60
_IND, _OOD = "#1b6ca8", "#d95f02"


def binned_percentages(scores: Scores, bins: int = _BINS) -> tuple[Vector, Vector, Vector]:
    """Return bin edges on a log axis, (bins + 1,), and the percentages of IND and of OOD samples per bin, (bins,).

    >>> from pnml_bench.figures._comparison import Scores
    >>> edges, ind, ood = binned_percentages(Scores(np.array([1.0, 2.0, 3.0, 4.0]), np.array([50.0, 100.0])), bins=2)
    >>> edges.round(6), ind, ood
    (array([  1.,  10., 100.]), array([100.,   0.]), array([  0., 100.]))
    """
    edges = log_edges(np.concatenate(scores), bins)
    ind, ood = (100 * np.histogram(clip_to(edges, part), edges)[0] / len(part) for part in scores)
    return edges, ind, ood


def draw(comparisons: Sequence[Comparison]) -> Figure:
    """Draw one row for each OOD set: the method's own score on the left, the regret on the right.

    The line is the threshold that keeps 95% of the in-distribution samples.

    >>> from pnml_bench.figures._comparison import Comparison, Scores
    >>> scores = Scores(np.array([1.0, 2.0]), np.array([2.0, 3.0]))
    >>> len(draw([Comparison("resnet-34", "svhn", "uniform", "baseline", scores, scores)]).axes)
    2
    """
    figure = new_figure(8.4, 2.4 * len(comparisons) + 0.7)
    panels: Any = figure.subplots(len(comparisons), 2, squeeze=False, sharex="col")
    for (left, right), comparison in zip(panels, comparisons, strict=True):
        _draw_panel(left, comparison, comparison.alone)
        _draw_panel(right, comparison, comparison.plus_pnml)
        left.set_ylabel("samples per bin (%)")
    panels[-1, 0].set_xlabel(r"baseline score, $1 - \max\,p$")
    panels[-1, 1].set_xlabel(r"regret $\Gamma$ (nats)")
    for axes in panels[-1]:
        plain_ticks(axes.xaxis)
    figure.suptitle(f"{label(comparisons[0].model)}, IND: {label(comparisons[0].ind)}", fontsize=10)
    handles, names = panels[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    return figure


def _draw_panel(axes: Axes, comparison: Comparison, scores: Scores) -> None:
    edges, ind, ood = binned_percentages(scores)
    for heights, colour, name in ((ind, _IND, "IND"), (ood, _OOD, "OOD")):
        axes.stairs(heights, edges, fill=True, color=colour, alpha=0.3)
        axes.stairs(heights, edges, color=colour, label=name)
    threshold = tnr_curve(*scores).threshold_at_tpr(0.95)
    axes.axvline(threshold, color="black", linestyle="--", linewidth=1, label="threshold that keeps 95% of IND")
    axes.set_title(f"OOD: {label(comparison.ood)}, {tnr_at_tpr(*scores):.1f}% flagged", fontsize=9)
    axes.set_xscale("log")
    axes.set_ylim(bottom=0)
    axes.spines[["top", "right"]].set_visible(False)
