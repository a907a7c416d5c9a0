"""The regret of a two-class model against xᵀg, for three levels of confidence.

The figure in the paper continues past xᵀg = 1, which xᵀg cannot exceed. This one ends at 1, where the regret is
log Σ 1/(2 − p_i).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.theorem import regret
from pnml_bench.figures._canvas import new_figure, style_axes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

P1 = (0.55, 0.85, 0.99)
"""The model's probability of class c₁ on each curve."""

_STYLES = (("#1b9e77", "-"), ("#d95f02", "--"), ("#7b3294", "-."))


def curves(resolution: int = 401) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return xᵀg from 0 to 1, shape (resolution,), and regret / log 2 for each of ``P1``, shape (3, resolution).

    >>> xtg, heights = curves()
    >>> heights[:, -1].round(3)  # log(1/(2 − p₁) + 1/(1 + p₁)) / log 2
    array([0.417, 0.496, 0.578])
    """
    xtg = np.linspace(0.0, 1.0, resolution)
    heights = [regret(np.tile([p, 1 - p], (resolution, 1)), xtg, normalized=True) for p in P1]
    return xtg, np.stack(heights)


def draw() -> Figure:
    """Draw the curves, each labelled at its end.

    >>> len(draw().axes[0].lines)
    3
    """
    figure = new_figure(4.8, 3.2)
    axes = figure.subplots()
    xtg, heights = curves()
    for p, curve, (colour, dashes) in zip(P1, heights, _STYLES, strict=True):
        axes.plot(xtg, curve, color=colour, linestyle=dashes, linewidth=1.8)
        label = f"$p_1 = {p}$"
        axes.annotate(label, (1, curve[-1]), (5, 0), textcoords="offset points", color=colour, va="center")
    axes.set(xlim=(0, 1), ylim=(0, None), xlabel=r"$x^\top g$", ylabel=r"pNML regret $\Gamma\,/\,\log 2$")
    style_axes(axes)
    return figure
