"""The most and the least trusted samples of every set, with what the network says of them."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pnml.report.pictures import data_uri, extremes, picture

if TYPE_CHECKING:
    from pnml.report.model import Report, ScoredSet


def render_gallery(report: Report) -> str:
    """Write one shelf per set; the script shows that of the chosen one."""
    return "\n".join(_shelf(report, number, scored) for number, scored in enumerate(report.sets))


def _shelf(report: Report, number: int, scored: ScoredSet) -> str:
    chosen = extremes(scored.regret)
    kinds = [("Most trusted", "smallest regret", chosen.most), ("Least trusted", "largest regret", chosen.least)]
    parts = [
        f'<h4>{title} <span class="muted">{which} first</span></h4>\n<ul class="cards">\n{cards}</ul>'
        for title, which, rows in kinds
        if (cards := "".join(_card(report, scored, int(row)) for row in rows))
    ]
    return "\n".join(
        [
            f'<section class="shelf {scored.role}" data-set="{number}" aria-labelledby="shelf-{number}">',
            f'<h3 id="shelf-{number}"><span class="key"></span>{escape(scored.name)}</h3>',
            *parts,
            "</section>",
        ]
    )


def _card(report: Report, scored: ScoredSet, row: int) -> str:
    name = f"sample {row:,}" if scored.ids is None else str(scored.ids[row])
    truth = None if scored.labels is None else class_name(report, int(scored.labels[row]))
    image = picture(scored, row)
    drawn = '<span class="blank">no picture</span>'
    if image is not None:
        height, width = image.shape[:2]
        alt = f"{name} of {scored.name}" + ("" if truth is None else f", labelled {truth}")
        crisp = ' class="crisp"' if max(height, width) <= 64 else ""
        drawn = f'<img src="{data_uri(image)}" width="{width}" height="{height}" alt="{escape(alt)}"{crisp}>'
    elif scored.images is None:
        drawn = ""
    return (
        f'<li class="sample" data-regret="{float(scored.regret[row])!r}">{drawn}'
        f"{_said(report, scored, row, truth)}"
        f'<span class="regret">{scored.regret[row]:.3g} nats</span>'
        f'<span class="verdict"></span>'
        f'<span class="id" title="{escape(name)}">{escape(name)}</span></li>\n'
    )


def _said(report: Report, scored: ScoredSet, row: int, truth: str | None) -> str:
    """Write what the network says, how sure it is, and, where its label is known, what it is."""
    if scored.prediction is None:
        return ""
    said = class_name(report, int(scored.prediction[row]))
    sure = "" if scored.probability is None else f" {100 * scored.probability[row]:.1f}%"
    wrong = "" if truth is None or truth == said else f'<span class="truth">is {escape(truth)}</span>'
    return f'<span class="said"><b>{escape(said)}</b>{sure}</span>{wrong}'


def class_name(report: Report, number: int) -> str:
    """Give a class's name, or its number where it has none."""
    return report.class_names[number] if 0 <= number < len(report.class_names) else f"class {number}"
