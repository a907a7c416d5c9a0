"""TNR against TPR at all thresholds, for a method alone and with pNML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnml.metrics import tnr_at_tpr, tnr_curve
from pnml.report.labels import label
from pnml_bench.figures._canvas import new_figure, style_axes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from pnml_bench.figures._comparison import Comparison

_STYLES = (("#d95f02", "--"), ("#1b6ca8", "-"))


def draw(comparisons: Sequence[Comparison]) -> Figure:
    """Draw one panel for each OOD set with both curves in percent, and mark the TNR at a TPR of 95%.

    >>> import numpy as np
    >>> from pnml_bench.figures._comparison import Comparison, Scores
    >>> scores = Scores(np.array([1.0, 2.0]), np.array([2.0, 3.0]))
    >>> (axes,) = draw([Comparison("resnet-34", "svhn", "uniform", "odin", scores, scores)]).axes
    >>> [text.get_text() for text in axes.get_legend().get_texts()]
    ['ODIN: 50.0 at TPR 95%', 'ODIN+pNML: 50.0 at TPR 95%']
    """
    columns = 2 if len(comparisons) == 4 else min(len(comparisons), 3)
    rows = -(-len(comparisons) // columns)
    figure = new_figure(4.2 * columns, 3.2 * rows)
    panels: Any = figure.subplots(rows, columns, squeeze=False, sharex=True)
    for axes in panels.flat[len(comparisons) :]:
        axes.remove()
    for axes, comparison in zip(panels.flat, comparisons, strict=False):
        method = label(comparison.method)
        sides = ((method, comparison.alone), (f"{method}+pNML", comparison.plus_pnml))
        axes.axvline(95, color="grey", linewidth=0.8)
        for (name, scores), (colour, dashes) in zip(sides, _STYLES, strict=True):
            curve, at_95 = tnr_curve(*scores), tnr_at_tpr(*scores)
            text = f"{name}: {at_95:.1f} at TPR 95%"
            axes.plot(curve.tpr, curve.tnr, color=colour, linestyle=dashes, linewidth=1.6, label=text)
            axes.plot([95], [at_95], "o", color=colour, markersize=5)
        axes.set_title(f"{label(comparison.model)}: {label(comparison.ind)} → {label(comparison.ood)}", fontsize=9)
        axes.set(xlabel="TPR: IND kept (%)", ylabel="TNR: OOD flagged (%)", xlim=(50, 100.5), ylim=(0, 101))
        style_axes(axes)
        axes.legend(loc="lower left", fontsize=8, framealpha=0.9, edgecolor="none")
    return figure
