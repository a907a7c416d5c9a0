"""The sections of the page, top to bottom; the script fills in what changes with the threshold and the chosen set."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from pnml.report.gallery import render_gallery
from pnml.report.labels import label
from pnml.report.numbers import pairs
from pnml.report.tables import METRICS, metric_table, render_table

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pnml.report.model import Report

_READ = {
    "Regret": "How much worse the prediction may be than that of a learner who knew the answer, in nats. 0 is a "
    "prediction to trust; the larger it is, the less the training set says about the sample.",
    "Threshold": "Samples with a larger regret are flagged, the others are kept.",
    "TPR": "True positive rate: the share of in-distribution samples that are kept.",
    "TNR": "True negative rate: the share of out-of-distribution samples that are flagged.",
    "FPR": "False positive rate: the share of out-of-distribution samples that are kept, 100% − TNR.",
    "AUROC": "How often, of a random pair, the out-of-distribution sample has the larger score: 50% is a coin.",
    "TNR at TPR 95%": "TNR at the threshold that keeps 95% of the in-distribution samples.",
    "Detection accuracy": "The best mean of TPR and TNR over all thresholds.",
}


_SLIDER = """<div class="slide">
<label for="threshold">Threshold</label>
<output id="threshold-value" for="threshold"></output>
<button type="button" id="reset"></button>
<input type="range" id="threshold" min="0" step="1">
</div>
"""


def render_sections(report: Report) -> str:
    """Write all sections that the report has something for."""
    parts = [_overview(report), _scores(report), _curves(report)] if report.sets else []
    return "\n".join([*parts, _metrics(report), _gallery(report), _facts(report), _reading(report)])


def _overview(report: Report) -> str:
    """Write the choice of the set to look at, and the headline numbers."""
    chips = "".join(
        f'<label class="chip {one.role}"><input type="radio" name="set" value="{number}">'
        f"<span>{escape(one.name)}</span></label>"
        for number, one in enumerate(report.sets)
        if one.role != "in"
    )
    is_choice = len(report.others) > 1
    legend = "Out-of-distribution set" if len(report.outside) == len(report.others) else "Set to look at"
    chosen = f'<fieldset class="chips"><legend>{legend}</legend>{chips}</fieldset>' if is_choice else ""
    return f"""<section class="overview" aria-labelledby="overview-title">
<h2 id="overview-title" class="quiet">In short</h2>
{chosen}
<div class="tiles">{_tiles(report)}</div>
</section>"""


def _tiles(report: Report) -> str:
    if pairs(report):
        return "".join(
            f'<div class="tile" data-metric="{metric}"><h3>{label(metric)}</h3>'
            f'<p class="big"><span class="value"></span><span class="name">{escape(report.pnml_name)}</span></p>'
            f'<div class="duel" aria-hidden="true"><span class="ours"></span><span class="theirs"></span></div>'
            f'<p class="beside"></p></div>'
            for metric in METRICS
        )
    counted = {"flagged": "Flagged", "kept": "Kept", "median": "Median regret"}
    return "".join(
        f'<div class="tile" data-count="{key}"><h3>{title}</h3><p class="big"><span class="value"></span></p>'
        f'<p class="beside"></p></div>'
        for key, title in counted.items()
    )


def _scores(report: Report) -> str:
    """Write the histogram, the threshold's slider and what it does to every set."""
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
<div class="scroll" tabindex="0" role="region" aria-label="What the threshold does to every set">
<table class="outcome">
<caption>At this threshold</caption>
<thead><tr><th scope="col">Set</th><th scope="col" class="number">Rate</th>
<th scope="col" class="share">Share flagged</th><th scope="col" class="number">Flagged</th></tr></thead>
<tbody>
{rows}</tbody>
</table>
</div>
</section>"""


def _curves(report: Report) -> str:
    panels = []
    if pairs(report):
        panels.append(("roc", "ROC", "Receiver operating characteristic"))
    if report.spectrum is not None:
        panels.append(("spectrum", "Spectrum of the training embeddings", "Spectrum of the training embeddings"))
    drawn = "".join(
        f'<section class="panel" aria-labelledby="{key}-title"><h2 id="{key}-title">{title}</h2>'
        f'<p class="legend" id="{key}-legend"></p>{_plot(key, name)}</section>\n'
        for key, title, name in panels
    )
    return f'<div class="columns">\n{drawn}</div>' if drawn else ""


def _plot(key: str, name: str, control: str = "") -> str:
    """Write a chart's place: read by arrow keys too, with its values in words below and all of them as a table."""
    return f"""<div class="plot" id="{key}" role="img" tabindex="0" aria-label="{name}"></div>
{control}<p class="readout" id="{key}-readout" aria-live="polite"></p>
<details data-table="{key}"><summary>{name}: the numbers</summary><div class="scroll"></div></details>"""


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
    return f"""<section class="panel" aria-labelledby="gallery-title">
<h2 id="gallery-title">Most and least trusted</h2>
{render_gallery(report)}
</section>"""


def _facts(report: Report) -> str:
    if not report.facts:
        return ""
    return f"""<section class="panel" aria-labelledby="run-title">
<h2 id="run-title">What was run</h2>
<dl class="facts">{_entries(report.facts)}</dl>
</section>"""


def _reading(report: Report) -> str:
    measured = bool(pairs(report) or report.tables)
    shown = _READ if measured else {name: _READ[name] for name in ("Regret", "Threshold")}
    return f"""<section class="panel" aria-labelledby="reading-title">
<h2 id="reading-title">How to read this</h2>
<dl class="facts">{_entries(shown)}</dl>
</section>"""


def _entries(entries: Mapping[str, str]) -> str:
    return "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(text)}</dd></div>\n" for name, text in entries.items())
