"""The sections of the page in order; the script fills in what depends on the threshold and the selected set."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pnml.report.by_class import render_classes
from pnml.report.definitions import render_definitions, render_in_short
from pnml.report.depth import render_depths
from pnml.report.document import render_entries, render_plot
from pnml.report.flagged import render_flagged
from pnml.report.gallery import render_gallery
from pnml.report.labels import label
from pnml.report.tables import METRICS, metric_table, render_table
from pnml.report.verdict import render_verdicts

if TYPE_CHECKING:
    from pnml.report.model import Report

_SLIDER = """<div class="slider">
<label for="threshold">Threshold</label>
<output id="threshold-value" for="threshold"></output>
<button type="button" id="reset"></button>
<input type="range" id="threshold" min="0" step="1">
</div>
"""


def render_sections(report: Report) -> str:
    """Return all sections for which the report has contents."""
    parts = []
    if report.sets:
        parts = [
            _overview(report),
            _scores(report),
            _p_values(report),
            render_flagged(report),
            render_depths(report),
            render_classes(report),
            _gallery(report),
            _curves(report),
        ]
    facts = render_entries("Run details", "run", report.facts)
    return "\n".join([*filter(None, parts), _metrics(report), facts, render_definitions(report)])


def _overview(report: Report) -> str:
    """Return the selection of the set and the main numbers."""
    chips = "".join(
        f'<label class="chip {one.role}"><input type="radio" name="set" value="{number}">'
        f"<span>{escape(one.name)}</span></label>"
        for number, one in enumerate(report.sets)
        if one.role != "in"
    )
    legend = "Out-of-distribution set" if len(report.ood_sets) == len(report.other_sets) else "Selected set"
    selection = (
        f'<fieldset class="chips"><legend>{legend}</legend>{chips}</fieldset>' if len(report.other_sets) > 1 else ""
    )
    return f"""<section class="overview" aria-labelledby="overview-title">
<h2 id="overview-title" class="visually-hidden">Summary</h2>
{selection}
{render_verdicts(report)}
<div class="tiles">{_tiles(report)}</div>
{render_in_short(report)}
</section>"""


def _tiles(report: Report) -> str:
    if report.has_metrics:
        return "".join(
            f'<div class="tile" data-metric="{metric}"><h3>{label(metric)}</h3>'
            f'<p class="big"><span class="value"></span><span class="name">{escape(report.pnml_name)}</span></p>'
            f'<div class="meters" aria-hidden="true"><span class="pnml"></span><span class="baseline"></span></div>'
            f'<p class="details"></p></div>'
            for metric in METRICS
        )
    counts = {"flagged": "Flagged", "kept": "Kept", "median": "Median regret"}
    return "".join(
        f'<div class="tile" data-count="{key}"><h3>{title}</h3><p class="big"><span class="value"></span></p>'
        f'<p class="details"></p></div>'
        for key, title in counts.items()
    )


def _scores(report: Report) -> str:
    """Return the histogram, the slider of the threshold and the rates of every set."""
    named: list[tuple[str, str, str]] = [(str(number), one.role, one.name) for number, one in enumerate(report.sets)]
    if report.calibration is not None:
        named = [("calibration", "calibration", "Calibration"), *named]
    rows = "".join(
        f'<tr data-set="{key}" class="{kind}"><th scope="row"><span class="key"></span>{escape(name)}</th>'
        f'<td class="number rate"></td><td class="share"><span class="bar"><span></span></span></td>'
        f'<td class="number flagged"></td><td class="number count"></td></tr>\n'
        for key, kind, name in named
    )
    return f"""<section class="panel" aria-labelledby="scores-title">
<h2 id="scores-title">Regret and threshold</h2>
<p class="legend" id="histogram-legend"></p>
{render_plot("histogram", "Histogram of the regrets", _SLIDER)}
<div class="scroll" tabindex="0" role="region" aria-label="Share of every set that is flagged at this threshold">
<table class="outcome">
<caption>At this threshold</caption>
<thead><tr><th scope="col">Set</th><th scope="col" class="number">Flagged, %</th>
<th scope="col" class="share">Share flagged</th><th scope="col" class="number">Flagged</th>
<th scope="col" class="number">Samples</th></tr></thead>
<tbody>
{rows}</tbody>
</table>
</div>
</section>"""


def _p_values(report: Report) -> str:
    if not report.has_p_values:
        return ""
    return f"""<section class="panel" aria-labelledby="pvalues-title">
<h2 id="pvalues-title">p-values</h2>
<p class="muted">Samples like the calibration data spread evenly, along the dashed line. A heap at the left is strange \
samples.</p>
<p class="legend" id="pvalues-legend"></p>
{render_plot("pvalues", "Histogram of the p-values")}
</section>"""


def _curves(report: Report) -> str:
    panels = []
    if report.has_metrics:
        panels.append(("roc", "ROC", "Receiver operating characteristic"))
    if report.spectrum is not None:
        panels.append(("spectrum", "Spectrum of the training embeddings", "Spectrum of the training embeddings"))
    rendered = "".join(
        f'<section class="panel" aria-labelledby="{key}-title"><h2 id="{key}-title">{title}</h2>'
        f'<p class="legend" id="{key}-legend"></p>{render_plot(key, name)}</section>\n'
        for key, title, name in panels
    )
    return f'<div class="columns">\n{rendered}</div>' if rendered else ""


def _metrics(report: Report) -> str:
    own = metric_table(report)
    tables = [*([own] if own else []), *report.tables]
    if not tables:
        return ""
    rendered = "\n".join(render_table(table) for table in tables)
    return f"""<section class="panel" aria-labelledby="metrics-title">
<h2 id="metrics-title">Metrics</h2>
{rendered}
</section>"""


def _gallery(report: Report) -> str:
    bars = any(one.leverage is not None for one in report.sets)
    note = "The small bars are the shares of the layers in the leverage, from input to output; the embedding is last."
    return f"""<section class="panel" aria-labelledby="gallery-title">
<h2 id="gallery-title">Most and least trusted</h2>
{f'<p class="muted">{note}</p>' if bars else ""}
{render_gallery(report)}
</section>"""
