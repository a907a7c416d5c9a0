"""The most and the least trusted samples of every set, with the network's predictions."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pnml.report.depth import render_shares
from pnml.report.thumbnails import data_uri, extremes, sample_thumbnail

if TYPE_CHECKING:
    from pnml.report.model import Report, ScoredSet


def render_gallery(report: Report) -> str:
    """Return one gallery per set; the script shows that of the selected set."""
    return "\n".join(_set_gallery(report, number, scored) for number, scored in report.numbered_sets)


def _set_gallery(report: Report, number: int, scored: ScoredSet) -> str:
    most, least = extremes(scored.regret)
    groups = [("Least trusted", "largest regret", least), ("Most trusted", "smallest regret", most)]
    parts = [
        f'<h4>{heading} <span class="muted">{order} first</span></h4>\n<ul class="cards">\n{cards}</ul>'
        for heading, order, rows in groups
        if (cards := "".join(_card(report, scored, int(row)) for row in rows))
    ]
    kinds, title = f"set-gallery of-set {scored.role}", f"gallery-{number}"
    return "\n".join(
        [
            f'<section class="{kinds}" data-set="{number}" aria-labelledby="{title}">',
            f'<h3 id="{title}"><span class="key"></span>{escape(scored.name)}</h3>',
            *parts,
            "</section>",
        ]
    )


def _card(report: Report, scored: ScoredSet, row: int) -> str:
    name = f"sample {row:,}" if scored.ids is None else str(scored.ids[row])
    label = None if scored.labels is None else report.class_name(int(scored.labels[row]))
    image = sample_thumbnail(scored, row)
    picture = "" if scored.images is None else '<span class="placeholder">no image</span>'
    if image is not None:
        height, width = image.shape[:2]
        alt = f"{name} of {scored.name}" + ("" if label is None else f", label {label}")
        pixelated = ' class="pixelated"' if max(height, width) <= 64 else ""
        picture = f'<img src="{data_uri(image)}" width="{width}" height="{height}" alt="{escape(alt)}"{pixelated}>'
    return (
        f'<li class="sample" data-regret="{float(scored.regret[row])!r}">{picture}'
        f"{_prediction(report, scored, row, label)}"
        f'<span class="regret">{scored.regret[row]:.3g} nats</span>'
        f'<span class="decision"></span>{render_shares(report, scored, row)}'
        f'<span class="id" title="{escape(name)}">{escape(name)}</span></li>\n'
    )


def _prediction(report: Report, scored: ScoredSet, row: int, label: str | None) -> str:
    """Return the predicted class, its probability, and the label if it is known and different."""
    if scored.prediction is None:
        return ""
    predicted = report.class_name(int(scored.prediction[row]))
    probability = "" if scored.probability is None else f" {100 * scored.probability[row]:.1f}%"
    wrong = "" if label in {None, predicted} else f'<span class="true-label">label: {escape(str(label))}</span>'
    return f'<span class="prediction"><b>{escape(predicted)}</b>{probability}</span>{wrong}'
