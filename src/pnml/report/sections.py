"""The sections of the page in order; the script fills in what depends on the threshold and the selected set."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pnml.report.depth import DEFINITIONS, render_depths
from pnml.report.gallery import render_gallery
from pnml.report.labels import label
from pnml.report.tables import METRICS, metric_table, render_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pnml.report.model import Report

_DEFINITIONS = {
    "Regret": "The difference in log-loss, in nats, between the pNML prediction and a learner who knows the label. The "
    "larger it is, the less the prediction can be trusted.",
    "Threshold": "Samples with a larger regret are flagged as out-of-distribution; the others are kept.",
    "TPR": "True positive rate: the share of in-distribution samples kept.",
    "TNR": "True negative rate: the share of out-of-distribution samples flagged.",
    "FPR": "False positive rate: the share of out-of-distribution samples kept, 100% − TNR.",
    "AUROC": "The probability that a random out-of-distribution sample has a larger score than a random "
    "in-distribution sample; 50% is chance.",
    "TNR at TPR 95%": "TNR at the threshold that keeps 95% of the in-distribution samples.",
    "Detection accuracy": "The largest mean of TPR and TNR over all thresholds.",
}


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
        parts = [_overview(report), _scores(report), _classes(report), render_depths(report), _curves(report)]
    return "\n".join([*parts, _metrics(report), _gallery(report), _facts(report), _definitions(report)])


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
<div class="tiles">{_tiles(report)}</div>
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
    rows = "".join(
        f'<tr data-set="{number}" class="{one.role}"><th scope="row"><span class="key"></span>{escape(one.name)}</th>'
        f'<td class="number rate"></td><td class="share"><span class="bar"><span></span></span></td>'
        f'<td class="number flagged"></td></tr>\n'
        for number, one in enumerate(report.sets)
    )
    return f"""<section class="panel" aria-labelledby="scores-title">
<h2 id="scores-title">Regret and threshold</h2>
<p class="legend" id="histogram-legend"></p>
{_plot("histogram", "Histogram of the regrets", _SLIDER)}
<div class="scroll" tabindex="0" role="region" aria-label="Rates of every set at this threshold">
<table class="outcome">
<caption>At this threshold</caption>
<thead><tr><th scope="col">Set</th><th scope="col" class="number">Rate</th>
<th scope="col" class="share">Share flagged</th><th scope="col" class="number">Flagged</th></tr></thead>
<tbody>
{rows}</tbody>
</table>
</div>
</section>"""


def _classes(report: Report) -> str:
    if report.by_class is None:
        return ""
    return f"""<section class="panel" aria-labelledby="classes-title">
<h2 id="classes-title">Classes</h2>
{render_table(report.by_class)}
</section>"""


def _curves(report: Report) -> str:
    panels = []
    if report.has_metrics:
        panels.append(("roc", "ROC", "Receiver operating characteristic"))
    if report.spectrum is not None:
        panels.append(("spectrum", "Spectrum of the training embeddings", "Spectrum of the training embeddings"))
    rendered = "".join(
        f'<section class="panel" aria-labelledby="{key}-title"><h2 id="{key}-title">{title}</h2>'
        f'<p class="legend" id="{key}-legend"></p>{_plot(key, name)}</section>\n'
        for key, title, name in panels
    )
    return f'<div class="columns">\n{rendered}</div>' if rendered else ""


def _plot(key: str, name: str, control: str = "") -> str:
    """Return the container of a chart, with a text for the current value and a table of all values."""
    return f"""<div class="plot" id="{key}" role="img" tabindex="0" aria-label="{name}"></div>
{control}<p class="readout" id="{key}-readout" aria-live="polite"></p>
<details data-table="{key}"><summary>{name}: table of values</summary><div class="scroll"></div></details>"""


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
    if not report.sets:
        return ""
    bars = any(one.leverage is not None for one in report.sets)
    note = "The small bars are the shares of the layers in the leverage, from input to output; the embedding is last."
    return f"""<section class="panel" aria-labelledby="gallery-title">
<h2 id="gallery-title">Most and least trusted</h2>
{f'<p class="muted">{note}</p>' if bars else ""}
{render_gallery(report)}
</section>"""


def _facts(report: Report) -> str:
    if not report.facts:
        return ""
    return f"""<section class="panel" aria-labelledby="run-title">
<h2 id="run-title">Run details</h2>
<dl class="facts">{_entries(report.facts)}</dl>
</section>"""


def _definitions(report: Report) -> str:
    all_terms = report.has_metrics or report.tables
    terms = _DEFINITIONS if all_terms else {name: _DEFINITIONS[name] for name in ("Regret", "Threshold")}
    terms = {**terms, **(DEFINITIONS if report.has_depths else {})}
    return f"""<section class="panel" aria-labelledby="definitions-title">
<h2 id="definitions-title">Definitions</h2>
<dl class="facts">{_entries(terms)}</dl>
</section>"""


def _entries(entries: Mapping[str, str]) -> str:
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>\n" for name, text in entries.items())
