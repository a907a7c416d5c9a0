"""The flagged samples of a set: the strangest ones as a table, and all of them to download."""

from __future__ import annotations

import base64
import csv
from io import StringIO
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.report.verdict import decisions, p_values

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.report.model import Report, ScoredSet

SHOWN = 20
"""Number of flagged samples in the table of a set."""
MOST = 10_000
"""Number of flagged samples to download, those with the largest regret, so that a page stays small enough to send."""
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # what makes spreadsheets compute a text
_TITLES = {
    "id": "Sample",
    "prediction": "Prediction",
    "probability": "Probability",
    "regret": "Regret",
    "p_value": "p-value",
    "strangest_layer": "Strangest layer",
}


def flagged_samples(report: Report, scored: ScoredSet) -> dict[str, Any] | None:
    """Return what the page says about the flagged samples; None if none can be named, or nothing was decided."""
    decided = decisions(report, scored)
    if decided is None or scored.ids is None:
        return None
    columns = _columns(report, scored, flagged_rows(scored.regret, decided))
    rows = list(zip(*columns.values(), strict=True))
    flagged = int(decided.sum())
    file = as_csv(list(columns), rows).encode("utf-8", "backslashreplace")
    return {
        "count": flagged,
        "which": f"all {flagged:,}" if flagged <= MOST else f"the {MOST:,} strangest of {flagged:,}",
        "file": base64.b64encode(file).decode("ascii"),
        "heads": [_TITLES[name] for name in columns],
        "rows": rows[:SHOWN],
    }


def flagged_rows(regret: NDArray[np.float64], decided: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the rows of flagged samples, the largest regret first, at most ``MOST``.

    >>> flagged_rows(np.array([0.3, 0.1, 0.9]), np.array([True, False, True]))
    array([2, 0])
    """
    rows = np.flatnonzero(decided)
    return rows[np.argsort(-regret[rows], kind="stable")][:MOST]


def as_csv(heads: list[str], rows: list[tuple[str, ...]]) -> str:
    """Return a table as CSV in which no spreadsheet finds a formula: such texts get an apostrophe before them.

    >>> print(as_csv(["id", "regret"], [("=1+1", "0.7"), ("a.png", "0.5")]), end="")
    id,regret
    '=1+1,0.7
    a.png,0.5
    """
    file = StringIO()
    writer = csv.writer(file)  # lines end in CR LF, so that either of them inside of an id is quoted
    writer.writerow(heads)
    writer.writerows([f"'{text}" if text.startswith(_FORMULA) else text for text in row] for row in rows)
    return file.getvalue()


def _columns(report: Report, scored: ScoredSet, rows: NDArray[np.intp]) -> dict[str, list[str]]:
    columns = {"id": [str(scored.ids[row]) for row in rows] if scored.ids is not None else []}
    if scored.prediction is not None:
        columns["prediction"] = [report.class_name(int(number)) for number in scored.prediction[rows]]
    if scored.probability is not None:
        columns["probability"] = [f"{value:.4f}" for value in scored.probability[rows]]
    columns["regret"] = [f"{value:.6g}" for value in scored.regret[rows]]
    p_value = p_values(report, scored)
    if p_value is not None:
        columns["p_value"] = [f"{value:.3g}" for value in p_value[rows]]
    if report.has_depths and scored.strangest is not None:
        names = ("embedding", *report.layer_names)
        columns["strangest_layer"] = [names[column] for column in scored.strangest[rows]]
    return columns
