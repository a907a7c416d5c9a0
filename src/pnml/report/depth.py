"""At which depth of the network samples are strange: the strangest layer, and the shares of all."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.report.model import Report, ScoredSet

WORDS = {
    "early": "Early layers see how a sample looks: noise, texture, another camera.",
    "late": "Late layers and the embedding see what a sample shows; strange looks may grow on their way to them.",
}
"""What a sample that stands out at a depth is likely to be."""

DEFINITIONS = {
    "Leverage": "How far a sample is from what the training set spans, in one layer of the network. The shares of all "
    "layers add up, and the regret grows with their sum. A layer in which the sample is like the training set has a "
    "share of 0.",
    "Depth": "The layer that is farthest above training samples, counted from the input to the output. "
    + " ".join(WORDS.values()),
}

_STEP, _HEIGHT = 10, 28  # of the small bars, in units of their drawing


def kind(report: Report, position: int) -> str:
    """Return "early" for the first half of the layers from input to output, "late" for the others."""
    return "early" if 2 * position + 1 < len(report.depths) else "late"


def depth_name(report: Report, column: int) -> str:
    """Return the name of a column of the leverages, of which the embedding is the first."""
    return report.depths[column - 1]


def flagged_by_depth(scored: ScoredSet, grid: NDArray[np.float64], count: int) -> list[list[int]] | None:
    """Return how many flagged samples are strangest at each of ``count`` depths, for every threshold; None if unknown.

    >>> from pnml.report import ScoredSet
    >>> new = ScoredSet(name="new", role="out", regret=[0.1, 0.2, 0.3], strangest=[1, 0, 1])
    >>> flagged_by_depth(new, np.array([0.0, 0.1, 0.25]), 2)
    [[2, 1, 1], [1, 1, 0]]
    """
    if scored.strangest is None:
        return None
    found = []
    for position in range(count):
        regret = np.sort(scored.regret[scored.strangest == _column(position, count)])
        found.append((len(regret) - np.searchsorted(regret, grid, side="right")).tolist())
    return found


def render_depths(report: Report) -> str:
    """Return the table of depths; the script fills in those of the flagged samples of the selected set."""
    if not report.has_depths:
        return ""
    rows = "".join(
        f'<tr data-depth="{position}" class="{kind(report, position)}"><th scope="row"><span class="key"></span>'
        f'{escape(name)}</th><td class="number rate"></td><td class="share"><span class="bar"><span></span></span></td>'
        f'<td class="number flagged"></td></tr>\n'
        for position, name in enumerate(report.depths)
    )
    words = "".join(
        f'<li class="{which}"><span class="key"></span><span>{text}</span> <b data-total="{which}"></b></li>\n'
        for which, text in WORDS.items()
    )
    return f"""<section class="panel" aria-labelledby="depths-title">
<h2 id="depths-title">Where flagged samples are strange</h2>
<ul class="depth-words">
{words}</ul>
<div class="scroll" tabindex="0" role="region" aria-label="Flagged samples by their strangest layer">
<table class="outcome depths">
<caption id="depths-caption"></caption>
<thead><tr><th scope="col">Layer</th><th scope="col" class="number">Share, %</th>
<th scope="col" class="share">Share of the flagged</th><th scope="col" class="number">Flagged</th></tr></thead>
<tbody>
{rows}</tbody>
</table>
</div>
</section>"""


def render_shares(report: Report, scored: ScoredSet, row: int) -> str:
    """Return small bars of the shares of a sample, and its strangest layer if it is flagged."""
    if scored.strangest is None:
        return ""
    position = (int(scored.strangest[row]) - 1) % len(report.depths)
    away = f'<span class="away">{kind(report, position)}: {escape(report.depths[position])}</span>'
    return away if scored.leverage is None else _bars(report, scored.leverage[row]) + away


def _bars(report: Report, leverage: NDArray[Any]) -> str:
    total = float(leverage.sum())
    shares = [float(value) / total if total else 0.0 for value in np.roll(leverage, -1)]
    named = [f"{name} {100 * share:.0f}%" for name, share in zip(report.depths, shares, strict=True)]
    bars = "".join(
        f'<rect class="{kind(report, position)}" x="{_STEP * position + 1}" y="{(1 - share) * (_HEIGHT - 2):.2f}" '
        f'width="{_STEP - 2}" height="{share * (_HEIGHT - 2) + 2:.2f}"><title>{escape(text)}</title></rect>'
        for position, (share, text) in enumerate(zip(shares, named, strict=True))
    )
    label = escape(f"Shares of the layers, from input to output: {', '.join(named)}")
    size = f'viewBox="0 0 {_STEP * len(shares)} {_HEIGHT}" preserveAspectRatio="none"'
    return f'<svg class="shares" {size} role="img" aria-label="{label}">{bars}</svg>'


def _column(position: int, count: int) -> int:
    """Return the column of the leverages, where the embedding is first, of a depth, where it is last."""
    return (position + 1) % count
