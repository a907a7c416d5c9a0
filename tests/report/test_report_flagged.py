"""Test the flagged samples to download: which, in which order, what is said about them, and that no id does harm."""

from __future__ import annotations

import base64
import csv
import re
from io import StringIO
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pnml.report import Report, ScoredSet
from pnml.report.page import render

from .factories import NASTY, calibrated


def downloads(page: str) -> list[list[dict[str, str]]]:
    """Return the rows of all files to download."""
    address = r'<a class="download" download="[\w.-]+" href="data:text/csv;charset=utf-8;base64,([^"]*)">'
    texts = [base64.b64decode(one).decode("utf-8") for one in re.findall(address, page)]
    return [list(csv.DictReader(StringIO(text, newline=""))) for text in texts]


def page_of(ids: list[str] | None, regret: Any = None, threshold: float | None = 0.5, **columns: Any) -> str:
    regret = np.linspace(1, 2, len(ids or ())) if regret is None else regret
    one = ScoredSet(name="new", role="unlabelled", regret=regret, ids=ids, **columns)
    return render(Report(title="", facts={}, sets=(one,), threshold=threshold))


def test_download_has_every_flagged_sample_with_what_is_known_of_it() -> None:
    report = calibrated()
    assert report.calibration is not None
    for one, rows in zip([*report.other_sets, report.ind_set], downloads(render(report)), strict=True):
        assert one is not None
        assert one.ids is not None
        assert one.prediction is not None
        assert one.probability is not None
        assert one.strangest is not None
        order = sorted(np.flatnonzero(one.regret > report.calibration.value), key=lambda row: -one.regret[row])
        assert [row["id"] for row in rows] == [one.ids[int(number)] for number in order]
        for row, number in zip(rows, order, strict=True):
            above = (report.calibration.scores >= one.regret[number]).sum()
            assert row["prediction"] == report.class_names[one.prediction[number]]
            assert float(row["probability"]) == np.round(one.probability[number], 4)
            assert np.isclose(float(row["regret"]), one.regret[number], rtol=1e-5)
            assert np.isclose(float(row["p_value"]), (1 + above) / (1 + report.calibration.count), rtol=1e-2)
            assert row["strangest_layer"] == ("embedding", *report.layer_names)[one.strangest[number]]


@settings(deadline=None, max_examples=60)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=4))
def test_any_id_comes_back_as_it_was(ids: list[str]) -> None:
    (rows,) = downloads(page_of(ids))
    for before, row in zip(ids, reversed(rows), strict=True):
        written = before.encode("utf-8", "backslashreplace").decode()
        is_formula = written.startswith(("=", "+", "-", "@", "\t", "\r"))  # which a spreadsheet would compute
        assert row["id"] == (f"'{written}" if is_formula else written)


def test_hostile_ids_are_text_everywhere() -> None:
    hostile = [NASTY, '"><img src=x onerror=alert(1)>', "</details><script>alert(2)</script>", "=HYPERLINK(1)"]
    page = page_of(hostile)
    assert "<script>alert" not in page
    assert "<img src=x" not in page
    assert page.count("<script") == 2
    (rows,) = downloads(page)
    assert [row["id"] for row in rows] == ["'=HYPERLINK(1)", *hostile[2::-1]]
