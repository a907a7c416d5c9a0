"""The Gram score against the regret of Gram+pNML for each sample."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.metrics import tnr_curve
from pnml.report.labels import label
from pnml_bench.figures._canvas import clip_to, log_edges, matplotlib_module, new_figure, plain_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pnml_bench.figures._comparison import Comparison, Scores

Vector = np.ndarray[Any, Any]

PAPER_THRESHOLDS = {"alone": 0.0017, "plus_pnml": 0.0024 * math.log(100)}
"""Those of the paper's figure, of DenseNet-BC-100 on CIFAR-100: of the Gram score, and of the regret in nats, which the
paper divides by log C."""

_BINS = 50
_RED, _GREY = "#e8000b", "#666666"


def count(alone: Scores, plus_pnml: Scores, thresholds: dict[str, float] | None = None) -> dict[str, Any]:
    """Count the samples that a method classifies wrongly alone and with pNML, each at its own best threshold.

    The best threshold is that of the detection accuracy; samples with a larger score are flagged as OOD. Row i of both
    scores must belong to the same sample. ``thresholds`` takes others than the best.

    Returns:
        ``samples``: the numbers of samples. ``thresholds``: the two thresholds. ``ind_refused`` and
        ``ind_refused_by_both``: in-distribution samples flagged by each, and by both. ``ood_caught_only_by``: OOD
        samples flagged by one and not by the other. ``ood_missed_by_both``: OOD samples flagged by neither.

    >>> from pnml_bench.figures._comparison import Scores
    >>> alone = Scores(np.array([1.0, 2.0, 3.0, 9.0]), np.array([0.5, 8.0, 7.0]))
    >>> plus_pnml = Scores(np.array([0.1, 0.2, 0.1, 0.2]), np.array([0.9, 0.8, 0.1]))
    >>> counts = count(alone, plus_pnml)
    >>> counts["ind_refused"], counts["ood_caught_only_by"]
    ({'alone': 1, 'plus_pnml': 0}, {'alone': 1, 'plus_pnml': 1})
    """
    best = {"alone": tnr_curve(*alone).best_threshold(), "plus_pnml": tnr_curve(*plus_pnml).best_threshold()}
    threshold, threshold_pnml = (thresholds or best).values()
    ind = alone.ind > threshold, plus_pnml.ind > threshold_pnml
    ood = alone.ood > threshold, plus_pnml.ood > threshold_pnml
    return {
        "samples": {"ind": len(alone.ind), "ood": len(alone.ood)},
        "thresholds": {"alone": threshold, "plus_pnml": threshold_pnml},
        "ind_refused": {"alone": int(ind[0].sum()), "plus_pnml": int(ind[1].sum())},
        "ind_refused_by_both": int((ind[0] & ind[1]).sum()),
        "ood_caught_only_by": {"alone": int((ood[0] & ~ood[1]).sum()), "plus_pnml": int((ood[1] & ~ood[0]).sum())},
        "ood_missed_by_both": int((~ood[0] & ~ood[1]).sum()),
    }


def describe(counts: dict[str, Any]) -> list[str]:
    """Return two sentences with the counts."""
    samples, flagged, only = (counts[key] for key in ("samples", "ind_refused", "ood_caught_only_by"))
    return [
        (
            f"Of {samples['ind']:,} in-distribution samples, Gram flags {flagged['alone']:,} and Gram+pNML "
            f"{flagged['plus_pnml']:,} ({counts['ind_refused_by_both']:,} flagged by both)."
        ),
        (
            f"Of {samples['ood']:,} OOD samples, Gram+pNML flags {only['plus_pnml']:,} that Gram misses, and Gram "
            f"{only['alone']:,} that Gram+pNML misses ({counts['ood_missed_by_both']:,} missed by both)."
        ),
    ]


def draw(comparison: Comparison) -> Figure:
    """Draw 2-D histograms of the regret of Gram+pNML against the Gram score, for IND and for OOD samples.

    Both axes and the colours are logarithmic; the lines are the thresholds of :func:`count`, thin those of the paper.

    >>> from pnml_bench.figures._comparison import Comparison, Scores
    >>> scores = Scores(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    >>> [axes.get_title() for axes in draw(Comparison("resnet-34", "svhn", "uniform", "gram", scores, scores)).axes[:2]]
    ['(a) IND: SVHN', '(b) OOD: Uniform']
    """
    thresholds = count(comparison.alone, comparison.plus_pnml)["thresholds"]
    edges = [log_edges(np.concatenate(scores), _BINS) for scores in (comparison.alone, comparison.plus_pnml)]
    grids = [
        np.histogram2d(clip_to(edges[0], x), clip_to(edges[1], y), bins=edges)[0]
        for x, y in zip(comparison.alone, comparison.plus_pnml, strict=True)
    ]
    norm = matplotlib_module("matplotlib.colors").LogNorm(1, max(2, *(grid.max() for grid in grids)))
    figure = new_figure(8.4, 4.1)
    panels: Any = figure.subplots(1, 2, sharex=True, sharey=True)
    titles = f"(a) IND: {label(comparison.ind)}", f"(b) OOD: {label(comparison.ood)}"
    for axes, title, grid, *scores in zip(panels, titles, grids, comparison.alone, comparison.plus_pnml, strict=True):
        mesh = axes.pcolormesh(*edges, np.ma.masked_equal(grid.T, 0), norm=norm, cmap="viridis_r")
        _draw_thresholds(axes, thresholds, *scores)
        if is_of_the_paper(comparison):
            axes.axvline(PAPER_THRESHOLDS["alone"], color=_GREY, linewidth=0.8, label="thresholds of the paper")
            axes.axhline(PAPER_THRESHOLDS["plus_pnml"], color=_GREY, linewidth=0.8)
        axes.set(xscale="log", yscale="log", xlabel="Gram score")
        axes.set_title(title, fontsize=10)
    margin = (edges[1][-1] / edges[1][0]) ** 0.16  # for the texts in the corners
    panels[0].set_ylim(edges[1][0] / margin, edges[1][-1] * margin)
    plain_ticks(panels[0].yaxis)
    panels[0].set_ylabel(r"regret of Gram+pNML, $\Gamma$ (nats)")
    figure.colorbar(mesh, ax=panels, label="samples")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    return figure


def is_of_the_paper(comparison: Comparison) -> bool:
    """Return whether network and in-distribution set are those of the paper's figure."""
    return (comparison.model, comparison.ind) == ("densenet-bc-100", "cifar100")


def _draw_thresholds(axes: Axes, thresholds: dict[str, float], gram: Vector, regret: Vector) -> None:
    """Draw both thresholds, and write the number of samples in each quadrant."""
    threshold, threshold_pnml = thresholds["alone"], thresholds["plus_pnml"]
    axes.axvline(threshold, color=_RED, linestyle="--", label=f"Gram: OOD above {threshold:.2g}")
    axes.axhline(threshold_pnml, color="black", linestyle="-.", label=f"Gram+pNML: OOD above {threshold_pnml:.2g} nats")
    for x, y, who in ((0, 0, "neither"), (1, 0, "Gram only"), (0, 1, "Gram+pNML only"), (1, 1, "both")):
        number = int((((gram > threshold) == x) & ((regret > threshold_pnml) == y)).sum())
        align: dict[str, Any] = {"ha": ("left", "right")[x], "va": ("bottom", "top")[y], "fontsize": 8}
        box = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1.5}
        corner = 0.02 + 0.96 * x, 0.02 + 0.96 * y
        axes.text(*corner, f"flagged by\n{who}: {number:,}", transform=axes.transAxes, bbox=box, **align)
