"""Gram against Gram+pNML, sample by sample: who tells which samples apart that the other does not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.extras import require
from pnml.bench.figures._bins import into, log_edges, plain_ticks
from pnml.bench.figures._canvas import blank
from pnml.metrics import tnr_curve
from pnml.report.labels import label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from pnml.bench.figures._runs import Duel, Scores

Vector = np.ndarray[Any, Any]

_BINS = 50
_RED = "#e8000b"


def count(alone: Scores, plus_pnml: Scores) -> dict[str, Any]:
    """Count the samples that a method, alone and with pNML, gets wrong, each at its own best threshold.

    The best threshold is that of the detection accuracy. A sample counts as in-distribution when its score is at or
    below it. Row i of both scores must belong to the same sample.

    Returns:
        ``samples``: how many there are. ``thresholds``: the two thresholds. ``ind_refused``: how many in-distribution
        samples each takes for OOD, ``ind_refused_by_both`` those that both do. ``ood_caught_only_by``: how many OOD
        samples each catches and the other misses; ``ood_missed_by_both``.

    >>> from pnml.bench.figures._runs import Scores
    >>> alone = Scores(np.array([1.0, 2.0, 3.0, 9.0]), np.array([0.5, 8.0, 7.0]))
    >>> plus_pnml = Scores(np.array([0.1, 0.2, 0.1, 0.2]), np.array([0.9, 0.8, 0.1]))
    >>> counts = count(alone, plus_pnml)
    >>> counts["ind_refused"], counts["ood_caught_only_by"]
    ({'alone': 1, 'plus_pnml': 0}, {'alone': 1, 'plus_pnml': 1})
    """
    first, second = tnr_curve(*alone).best_threshold(), tnr_curve(*plus_pnml).best_threshold()
    ind = alone.ind > first, plus_pnml.ind > second
    ood = alone.ood > first, plus_pnml.ood > second
    return {
        "samples": {"ind": len(alone.ind), "ood": len(alone.ood)},
        "thresholds": {"alone": first, "plus_pnml": second},
        "ind_refused": {"alone": int(ind[0].sum()), "plus_pnml": int(ind[1].sum())},
        "ind_refused_by_both": int((ind[0] & ind[1]).sum()),
        "ood_caught_only_by": {"alone": int((ood[0] & ~ood[1]).sum()), "plus_pnml": int((ood[1] & ~ood[0]).sum())},
        "ood_missed_by_both": int((~ood[0] & ~ood[1]).sum()),
    }


def describe(counts: dict[str, Any]) -> list[str]:
    """Say the counts in two sentences."""
    samples, refused, only = (counts[key] for key in ("samples", "ind_refused", "ood_caught_only_by"))
    kept = (
        f"of {samples['ind']:,} in-distribution samples Gram refuses {refused['alone']:,} and Gram+pNML "
        f"{refused['plus_pnml']:,} ({counts['ind_refused_by_both']:,} of them both)"
    )
    caught = (
        f"of {samples['ood']:,} OOD samples Gram+pNML catches {only['plus_pnml']:,} that Gram misses, and Gram "
        f"{only['alone']:,} that Gram+pNML misses ({counts['ood_missed_by_both']:,} are missed by both)"
    )
    return [kept, caught]


def draw(duel: Duel) -> Figure:
    """Draw 2-D histograms of the regret of Gram+pNML against the Gram score, of IND and of OOD samples.

    Both axes and the counts are logarithmic; the lines are the best thresholds of :func:`count`.

    >>> from pnml.bench.figures._runs import Duel, Scores
    >>> scores = Scores(np.array([1.0, 2.0]), np.array([3.0, 4.0]))
    >>> [axes.get_title() for axes in draw(Duel("resnet-34", "svhn", "uniform", "gram", scores, scores)).axes[:2]]
    ['(a) IND: SVHN', '(b) OOD: Uniform']
    """
    thresholds = count(duel.alone, duel.plus_pnml)["thresholds"]
    edges = [log_edges(np.concatenate(scores), _BINS) for scores in (duel.alone, duel.plus_pnml)]
    grids = [
        np.histogram2d(into(edges[0], x), into(edges[1], y), bins=edges)[0]
        for x, y in zip(duel.alone, duel.plus_pnml, strict=True)
    ]
    norm = require("matplotlib.colors", extra="plot", what="pnml.bench.figures").LogNorm(
        1, max(2, *(g.max() for g in grids))
    )
    figure = blank(8.4, 4.1)
    panels: Any = figure.subplots(1, 2, sharex=True, sharey=True)
    titles = f"(a) IND: {label(duel.ind)}", f"(b) OOD: {label(duel.ood)}"
    for axes, title, grid, *scores in zip(panels, titles, grids, duel.alone, duel.plus_pnml, strict=True):
        shown = axes.pcolormesh(*edges, np.ma.masked_equal(grid.T, 0), norm=norm, cmap="viridis_r")
        _mark(axes, thresholds, *scores)
        axes.set(xscale="log", yscale="log", xlabel="Gram score")
        axes.set_title(title, fontsize=10)
    room = (edges[1][-1] / edges[1][0]) ** 0.16  # for the words in the corners
    panels[0].set_ylim(edges[1][0] / room, edges[1][-1] * room)
    plain_ticks(panels[0].yaxis)
    panels[0].set_ylabel(r"regret of Gram+pNML, $\Gamma$ (nats)")
    figure.colorbar(shown, ax=panels, label="samples")
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=2, frameon=False)
    return figure


def _mark(axes: Axes, thresholds: dict[str, float], gram: Vector, regret: Vector) -> None:
    """Draw both thresholds and write in each corner who calls the samples there OOD, and how many they are."""
    at, at_pnml = thresholds["alone"], thresholds["plus_pnml"]
    axes.axvline(at, color=_RED, linestyle="--", label=f"Gram: OOD above {at:.2g}")
    axes.axhline(at_pnml, color="black", linestyle="-.", label=f"Gram+pNML: OOD above {at_pnml:.2g} nats")
    for x, y, who in (
        (0, 0, "neither\nsays"),
        (1, 0, "only Gram\nsays"),
        (0, 1, "only Gram+pNML\nsays"),
        (1, 1, "both\nsay"),
    ):
        there = int((((gram > at) == x) & ((regret > at_pnml) == y)).sum())
        place: dict[str, Any] = {"ha": ("left", "right")[x], "va": ("bottom", "top")[y], "fontsize": 8}
        box = {"facecolor": "white", "alpha": 0.7, "edgecolor": "none", "pad": 1.5}
        axes.text(
            0.02 + 0.96 * x, 0.02 + 0.96 * y, f"{who} OOD: {there:,}", transform=axes.transAxes, bbox=box, **place
        )
