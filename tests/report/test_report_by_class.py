"""Test what the page says about predicted classes: flagged shares, their intervals, and what calibration promises."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from scipy import stats

from pnml.core.detector import Detector
from pnml.io.scores import score_writer
from pnml.report.by_class import class_table
from pnml.report.page import render
from pnml.report.scored import report_of_scores

from .factories import page_data_of

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.core.calibration import By


def test_rates_and_intervals_are_those_of_the_decisions() -> None:
    rng = np.random.default_rng(0)
    numbers = [-1, 0, 1, 10**15]
    prediction, is_ood = rng.choice(numbers, 200, p=[0.05, 0.55, 0.35, 0.05]), rng.uniform(size=200) < 0.1
    table = class_table(prediction, is_ood, ["ant", "bee"])
    assert [row[0] for row in table.rows] == ["-1", "ant", "bee", str(10**15)], "some have no name"
    for row, number in zip(table.rows, numbers, strict=True):
        mine = is_ood[prediction == number]
        assert row[1] == pytest.approx(100 * mine.mean())
        assert row[2:4] == (str(mine.sum()), str(len(mine)))
        low, high = stats.binomtest(int(mine.sum()), len(mine)).proportion_ci(0.95)
        assert row[4] == f"{low:.1%} to {high:.1%}"


def scored(folder: Path, by: By | None) -> tuple[Detector, dict[str, Any]]:
    """Write a detector and the scores of fresh rows; give both."""
    rng = np.random.default_rng(0)
    detector = Detector(np.diag([3.0, 1.0, 1.0])).fit(rng.normal(size=(500, 3)) * [1, 2, 3])
    detector.calibrate(rng.normal(size=(500, 3)) * [1, 2, 3], by=by, false_alarm_rate=0.1)
    table = detector(rng.normal(size=(300, 3)) * [1, 2, 3]).to_table()
    table = {"id": np.array([str(n) for n in range(300)]), **table}
    score_writer(folder / "scores.csv")(folder / "scores.csv", [table])
    detector.save(folder / "detector.safetensors")
    return detector, table


@pytest.mark.parametrize("by", [None, "prediction"])
def test_report_of_scores_has_the_classes(by: Any, tmp_path: Path) -> None:
    detector, table = scored(tmp_path, by)
    assert detector.threshold is not None
    report = report_of_scores(tmp_path / "scores.csv", detector=tmp_path / "detector.safetensors")
    page = render(report)
    section = page.split("Flagged by predicted class</h2>")[1].split("</section>")[0]
    rows = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in section.split("<tr>")[2:]]
    assert [int(row[1]) for row in rows] == np.bincount(table["prediction"][table["is_ood"]], minlength=3).tolist()
    assert all(("guaranteed" in row[-1]) == (by == "prediction") for row in rows)
    assert ("by predicted class; 3 of 3 classes" in page) == (by == "prediction")
    assert ("the slider moves one threshold for all" in page) == (by == "prediction")
    assert page_data_of(page)["origin"] == "calibrated"


def test_decisions_by_class_are_not_taken_for_one_threshold(tmp_path: Path) -> None:
    """Without the detector the slider starts where it keeps 95 % of the samples, not at a threshold that nobody set."""
    _, table = scored(tmp_path, "prediction")
    is_ood, regret = table["is_ood"], table["regret"]
    assert regret[is_ood].min() < regret[~is_ood].max(), "no single threshold decides so"
    report = report_of_scores(tmp_path / "scores.csv")
    assert report.threshold is None
    assert page_data_of(render(report))["origin"] == "flags 5% of all samples"
