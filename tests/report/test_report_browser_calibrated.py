"""Test in a browser what a page shows with a calibration: the answer, the histogram behind, p-values, downloads."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pnml.report import write_report

from .factories import calibrated
from .test_report_browser import CONTRAST, check_rates, opened, pytestmark, text_of, window

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

__all__ = ["pytestmark", "window"]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(calibrated(), tmp_path_factory.mktemp("report") / "report.html")


def visible(page: Page, selector: str) -> list[str]:
    return [one.inner_text() for one in page.locator(f"{selector}:visible").all()]


def test_answers_are_of_the_selected_and_the_known_set(window: Page, path: Path) -> None:
    with opened(window, path) as page:
        assert visible(page, ".verdict .set-name") == ["strange", "known"]
        assert visible(page, ".verdict .answer")[0].endswith("this is not the data you calibrated on.")
        before = visible(page, ".verdict .answer")
        page.locator("#threshold").focus()
        page.keyboard.press("Home")
        assert visible(page, ".verdict .answer") == before, "the answer is of the calibrated threshold"
        page.locator("input[name=set][value='2']").check()
        assert visible(page, ".verdict .set-name") == ["new", "known"]
        assert len(visible(page, ".download")) == 2


def test_calibration_stands_behind_the_histogram_and_in_the_table(window: Page, path: Path) -> None:
    report = calibrated()
    assert report.calibration is not None
    with opened(window, path) as page:
        check_rates(page, report)
        assert page.locator("#histogram .calibration-area").count() == 1
        assert "Calibration (400)" in text_of(page, "#histogram-legend")
        flagged = int((report.calibration.scores > report.calibration.value).sum())
        assert text_of(page, "tr[data-set=calibration] .flagged") == str(flagged)
        page.locator("#histogram").focus()
        page.keyboard.press("Home")
        edges = page.evaluate("data.edges")
        first = 100 * np.mean(report.calibration.scores < edges[1])
        assert f"{first:.1f}% of Calibration" in text_of(page, "#histogram-readout")


def test_p_values_are_read_by_keyboard_and_follow_the_selected_set(window: Page, path: Path) -> None:
    report = calibrated()
    assert report.calibration is not None
    with opened(window, path) as page:
        for number in (1, 2):
            page.locator(f"input[name=set][value='{number}']").check()
            one = report.sets[number]
            small = np.mean((1 + (report.calibration.scores[:, None] >= one.regret).sum(axis=0)) / 401 <= 0.05)
            page.locator("#pvalues").focus()
            page.keyboard.press("Home")
            assert text_of(page, "#pvalues-readout") == f"p-value 0 to 0.05: {100 * small:.1f}% of {one.name}"
        page.locator("details[data-table=pvalues] summary").click()
        page.wait_for_selector("details[data-table=pvalues] td")
        assert page.locator("details[data-table=pvalues] tbody tr").count() == 20


def test_flagged_samples_are_downloaded(window: Page, path: Path, tmp_path: Path) -> None:
    report = calibrated()
    assert report.calibration is not None
    with opened(window, path) as page:
        with page.expect_download() as started:
            page.locator(".download:visible").first.click()
        started.value.save_as(tmp_path / "flagged.csv")
    with (tmp_path / "flagged.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    strange = report.sets[1]
    order = np.argsort(-strange.regret)[: int((strange.regret > report.calibration.value).sum())]
    assert [row["id"] for row in rows] == [f"strange-{number}.png" for number in order]


def test_links_lead_to_definitions(window: Page, path: Path) -> None:
    with opened(window, path) as page:
        page.locator(".in-short a").first.click()
        page.wait_for_url("**#definition-regret")
        assert page.locator("#definition-regret").is_visible()


def test_opened_tables_fit_a_phone(window: Page, path: Path) -> None:
    with opened(window, path, width=360) as page:
        for summary in page.locator("details:visible > summary").all():
            summary.click()
        assert page.evaluate("document.documentElement.scrollWidth") <= 360
        assert page.evaluate(CONTRAST) == []
