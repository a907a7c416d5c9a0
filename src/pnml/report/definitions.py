"""What the words of the page mean: the most important in one line each at its top, all of them at its end."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, NamedTuple

from pnml.report.depth import DEFINITIONS as DEPTHS

if TYPE_CHECKING:
    from pnml.report.model import Report


class Link(NamedTuple):
    """An address to read on at, and what is found there."""

    text: str
    address: str


_IN_SHORT = {
    "Regret": "what the answer may cost beyond the best possible one, in nats: the larger, the less it can be trusted.",
    "p-value": "the share of calibration samples that are at least as strange: small means strange.",
    "TNR": "true negative rate, the share of out-of-distribution samples that are flagged: the larger, the better.",
}

_TERMS = {
    "Regret": "The difference in log-loss, in nats, between the pNML prediction and a learner who knows the label. The "
    "larger it is, the less the prediction can be trusted.",
    "p-value": "The share of calibration samples with a regret at least as large, the sample itself counted. Samples "
    "like the calibration data have p-values spread evenly from 0 to 1.",
    "Threshold": "Samples with a larger regret are flagged as out-of-distribution; the others are kept.",
    "TPR": "True positive rate: the share of in-distribution samples kept.",
    "TNR": "True negative rate: the share of out-of-distribution samples flagged.",
    "FPR": "False positive rate: the share of out-of-distribution samples kept, 100% − TNR.",
    "AUROC": "The probability that a random out-of-distribution sample has a larger score than a random "
    "in-distribution sample; 50% is chance.",
    "TNR at TPR 95%": "TNR at the threshold that keeps 95% of the in-distribution samples.",
    "Detection accuracy": "The largest mean of TPR and TNR over all thresholds.",
}

LINKS = {
    "Regret": Link("the paper", "https://arxiv.org/abs/2110.09246"),
    "p-value": Link("conformal p-values", "https://arxiv.org/abs/2104.08279"),
    "TNR": Link("sensitivity and specificity", "https://en.wikipedia.org/wiki/Sensitivity_and_specificity"),
    "AUROC": Link("ROC curves", "https://en.wikipedia.org/wiki/Receiver_operating_characteristic"),
}
"""Where to read on."""


def render_in_short(report: Report) -> str:
    """Return one line for each of the words that the answer needs, with a link to its definition."""
    lines = "".join(
        f'<li><b>{name}</b>: {text} <a href="#{_anchor(name)}">More</a></li>\n'
        for name, text in _IN_SHORT.items()
        if name in _known(report)
    )
    return f'<ul class="in-short">\n{lines}</ul>'


def render_definitions(report: Report) -> str:
    """Return the definitions of all words that the page uses."""
    terms = {name: _TERMS[name] for name in _known(report)}
    entries = "".join(
        f'<div id="{_anchor(name)}"><dt>{escape(name)}</dt><dd>{escape(text)}{_link(name)}</dd></div>\n'
        for name, text in {**terms, **(DEPTHS if report.has_depths else {})}.items()
    )
    return f"""<section class="panel" aria-labelledby="definitions-title">
<h2 id="definitions-title">Definitions</h2>
<dl class="facts">{entries}</dl>
</section>"""


def _known(report: Report) -> list[str]:
    """Return the words that the page uses, in the order of their definitions."""
    if report.has_metrics or report.tables:
        return [name for name in _TERMS if name != "p-value" or report.has_p_values]
    return [name for name in ("Regret", "p-value", "Threshold") if name != "p-value" or report.has_p_values]


def _anchor(name: str) -> str:
    return "definition-" + "".join(letter if letter.isalnum() else "-" for letter in name.lower())


def _link(name: str) -> str:
    if name not in LINKS:
        return ""
    text, address = LINKS[name]
    return f' <a href="{escape(address)}" rel="noopener noreferrer">Read on: {escape(text)}</a>'
