"""The flagged samples of every set: the strangest ones as a table, and all of them to download."""

from __future__ import annotations

import base64
import csv
from html import escape
from io import StringIO
from typing import TYPE_CHECKING

import numpy as np

from pnml.report.decisions import decisions, p_values
from pnml.report.depth import depth_name

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.report.model import Report, ScoredSet

SHOWN = 20
"""Number of flagged samples in the table of a set."""
MOST = 10_000
"""Number of flagged samples to download, those with the largest regret, so that a page stays small enough to send."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes spreadsheets compute a text


def render_flagged(report: Report) -> str:
    """Return the flagged samples of every set whose samples have ids; the script shows those of the selected set."""
    parts = [_of_set(report, number, one) for number, one in report.numbered_sets]
    if not any(parts):
        return ""
    return "\n".join(
        [
            '<section class="panel" aria-labelledby="flagged-title">',
            '<h2 id="flagged-title">Flagged samples</h2>',
            *filter(None, parts),
            "</section>",
        ]
    )


def flagged_rows(regret: NDArray[np.float64], decided: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the rows of flagged samples, the largest regret first, at most ``MOST``.

    >>> flagged_rows(np.array([0.3, 0.1, 0.9]), np.array([True, False, True]))
    array([2, 0])
    """
    rows = np.flatnonzero(decided)
    return rows[np.argsort(-regret[rows], kind="stable")][:MOST]


def flagged_table(report: Report, scored: ScoredSet, rows: NDArray[np.intp]) -> tuple[list[str], list[list[str]]]:
    """Return headings and rows of what is known about some samples: id, prediction, regret, p-value and depth."""
    found = p_values(report, scored)
    columns: dict[str, list[str]] = {"id": [str(scored.ids[row]) for row in rows] if scored.ids is not None else []}
    if scored.prediction is not None:
        columns["prediction"] = [report.class_name(int(scored.prediction[row])) for row in rows]
    if scored.probability is not None:
        columns["probability"] = [f"{scored.probability[row]:.4f}" for row in rows]
    columns["regret"] = [f"{scored.regret[row]:.6g}" for row in rows]
    if found is not None:
        columns["p_value"] = [f"{found[row]:.3g}" for row in rows]
    if report.has_depths and scored.strangest is not None:
        columns["strangest_layer"] = [depth_name(report, int(scored.strangest[row])) for row in rows]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def as_csv(headings: list[str], rows: list[list[str]]) -> str:
    """Return a table as CSV in which no spreadsheet finds a formula: such texts get an apostrophe before them.

    >>> print(as_csv(["id", "regret"], [["=1+1", "0.7"], ["a.png", "0.5"]]), end="")
    id,regret
    '=1+1,0.7
    a.png,0.5
    """
    file = StringIO()
    writer = csv.writer(file)  # lines end in CR LF, so that either of them inside of an id is quoted
    writer.writerows([headings, *([_harmless(text) for text in row] for row in rows)])
    return file.getvalue()


def _of_set(report: Report, number: int, scored: ScoredSet) -> str:
    decided = decisions(report, scored)
    if decided is None or scored.ids is None:
        return ""
    flagged, rows = int(decided.sum()), flagged_rows(scored.regret, decided)
    opening = (
        f'<div class="of-set {scored.role}" data-set="{number}"><h3><span class="key"></span>{escape(scored.name)}'
    )
    if not flagged:
        return f"{opening}</h3><p>No sample is flagged.</p></div>"
    headings, texts = flagged_table(report, scored, rows)
    encoded = base64.b64encode(as_csv(headings, texts).encode("utf-8", "backslashreplace")).decode("ascii")
    which = f"all {flagged:,}" if flagged <= MOST else f"the {MOST:,} strangest of {flagged:,}"
    head = "".join(f'<th scope="col">{_TITLES[name]}</th>' for name in headings)
    body = "".join(_row(row) for row in texts[:SHOWN])
    shown = "" if flagged <= SHOWN else f", the first {SHOWN}"
    return f"""{opening}</h3>
<p><a class="download" download="flagged-{number}.csv" href="data:text/csv;charset=utf-8;base64,{encoded}">Download \
{which} flagged samples as CSV</a></p>
<details><summary>Flagged samples, largest regret first{shown}</summary>
<div class="scroll" tabindex="0" role="region" aria-label="Flagged samples of {escape(scored.name)}">
<table><thead><tr>{head}</tr></thead>
<tbody>
{body}</tbody></table></div></details></div>"""


_TITLES = {
    "id": "Sample",
    "prediction": "Prediction",
    "probability": "Probability",
    "regret": "Regret",
    "p_value": "p-value",
    "strangest_layer": "Strangest layer",
}


def _row(texts: list[str]) -> str:
    first, *others = (escape(text) for text in texts)
    return f'<tr><th scope="row">{first}</th>{"".join(f"<td>{text}</td>" for text in others)}</tr>\n'


def _harmless(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULA) else text
