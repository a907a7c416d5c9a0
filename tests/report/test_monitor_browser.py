"""The page of a monitor in a browser: charts, keyboard, phone and dark mode."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pnml.report.monitored import write_monitor

from .factories import NASTY
from .monitors import changed, quiet
from .test_report_browser import CONTRAST, opened, pytestmark, text_of, window

if TYPE_CHECKING:
    from pathlib import Path

    from playwright.sync_api import Page

__all__ = ["pytestmark", "window"]

CHARTS = ("evidence", "rates", "p-values")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("monitor")
    named = {"title": f"Camera {NASTY}", "facts": {"Scores": "W" * 200}, "class_names": (NASTY, "bee", "cat")}
    made = {"changed": (changed(), named), "quiet": (quiet(), {})}
    return {name: write_monitor(one, folder / f"{name}.html", **options) for name, (one, options) in made.items()}  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["changed", "quiet"])
def test_layout_fits_a_phone_and_texts_have_contrast(window: Page, pages: dict[str, Path], name: str) -> None:
    for scheme in ("light", "dark"):
        with opened(window, pages[name], width=360, scheme=scheme) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            assert page.evaluate(CONTRAST) == []


@pytest.mark.parametrize("chart", CHARTS)
@pytest.mark.parametrize("name", ["changed", "quiet"])
def test_charts_are_drawn_and_read_by_pointer_and_by_keyboard(
    window: Page, pages: dict[str, Path], name: str, chart: str
) -> None:
    with opened(window, pages[name]) as page:
        box = page.locator(f"#{chart} svg").bounding_box()
        assert box is not None
        assert box["width"] > 500
        readout, plot = page.locator(f"#{chart}-readout"), page.locator(f"#{chart}")
        hint = readout.inner_text()
        plot.hover()
        assert readout.inner_text() != hint
        page.mouse.move(0, 0)
        plot.focus()
        texts = []
        for key in ("Home", "End", "ArrowRight", "Escape"):
            page.keyboard.press(key)
            texts.append(readout.inner_text())
        assert len(set(texts)) >= (2 if chart == "rates" and name == "quiet" else 3)
        assert texts[1] == texts[2]
        assert texts[3] == hint
        assert len(str(plot.get_attribute("aria-label"))) > 60
        page.locator(f"details[data-table={chart}] summary").click()
        page.wait_for_selector(f"details[data-table={chart}] td")


def test_readouts_are_correct(window: Page, pages: dict[str, Path]) -> None:
    monitor = changed()
    history, since = monitor.history, monitor.periods[-1]
    with opened(window, pages["changed"]) as page:
        for chart, key in (("evidence", "Home"), ("rates", "Home"), ("p-values", "Home")):
            page.locator(f"#{chart}").focus()
            page.keyboard.press(key)
        first = text_of(page, "#p-values-readout")
        assert f"{100 * since.p_values[0] / since.samples:.1f}% of samples {since.first:,} to {since.last:,}" in first
        page.locator("#evidence").focus()
        page.keyboard.press("End")
        shown = text_of(page, "#evidence-readout")
        assert f"{history.window * (history.length - 1) + 1:,} to {monitor.count:,}" in shown
        assert "evidence 10^" in shown
        page.locator("#rates").focus()
        page.keyboard.press("Home")
        rates = page.evaluate("data.rates[0]")
        assert f"Samples 1 to {rates['last']:,}: {100 * rates['share']:.1f}% flagged" in text_of(page, "#rates-readout")


def test_the_change_is_marked_at_its_sample(window: Page, pages: dict[str, Path]) -> None:
    with opened(window, pages["changed"]) as page:
        for chart in ("evidence", "rates"):
            line = float(page.locator(f"#{chart} .since").get_attribute("x1") or "nan")
            width = float(page.locator(f"#{chart} svg").get_attribute("width") or "nan")
            edge = page.evaluate("EDGE")
            share = (line - edge["left"]) / (width - edge["left"] - edge["right"])
            assert share == pytest.approx(page.evaluate("data.since / data.count"), abs=1e-3)
    with opened(window, pages["quiet"]) as page:
        assert page.locator(".since").count() == 0


def test_page_without_javascript_has_the_answer_and_tables(window: Page, pages: dict[str, Path]) -> None:
    browser = window.context.browser
    assert browser is not None
    page = browser.new_page(java_script_enabled=False)
    page.goto(pages["changed"].as_uri())
    assert "no longer looks like the calibration data" in page.locator(".answer").inner_text()
    assert page.locator("td.number").first.is_visible()
    page.close()
