"""Test the pages in a browser: charts, slider, keyboard, accessibility and layout."""

from __future__ import annotations

import csv
import re
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from pnml.report import Report, ScoredSet, Table, write_monitor, write_report

from .factories import NASTY, calibrated, changed, comparison, layered, quiet, scored, unlabelled

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Page

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome", "chrome"))), None)
api = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")

CONTRAST = """() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgba = (text) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = text;
    canvas.fillRect(0, 0, 1, 1);
    return [...canvas.getImageData(0, 0, 1, 1).data];
  };
  const light = ([r, g, b]) => {
    const parts = [r, g, b].map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2];
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = rgba(getComputedStyle(one).backgroundColor);
      if (colour[3] === 255) return colour;
      if (colour[3] !== 0) throw new Error("translucent background");
    }
    return rgba(getComputedStyle(document.documentElement).backgroundColor);
  };
  const poor = [];
  for (const element of document.querySelectorAll("body *")) {
    const own = [...element.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    if (!own || !element.checkVisibility() || element.closest("script, noscript")) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(rgba(element.closest("svg") ? style.fill : style.color)), light(behind(element))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.push(`${element.tagName} ${element.className} ${element.textContent} ${ratio}`);
  }
  return poor;
}"""
WIDE = Table(
    title="Wide",
    columns=("Set", *(("AUROC", f"method {n}") for n in range(30))),
    rows=((NASTY, *map(float, range(60, 90))),),
    charted="method 3",
)
REPORTS = {
    "comparison": comparison(),
    "unlabelled": unlabelled(),
    "tables": Report(title="Tables", facts={"Command": "x" * 200}, sets=(), tables=(WIDE,)),
    "in only": Report(title="Known", facts={}, sets=(scored("known", "in", -1, 30, 0),), spectrum=np.array([1.0])),
    "all the same": Report(
        title="W" * 80,
        facts={"Command": "W" * 200},
        sets=(ScoredSet(name="W" * 80, role="unlabelled", regret=np.array([0.5, 0.5])),),
    ),
    "layered": layered(),
    "calibrated": calibrated(),
}
CHARTS = {"comparison": {"histogram": 60, "roc": 21, "spectrum": 60}, "calibrated": {"pvalues": 20}}
MONITOR_CHARTS = ("evidence", "rates", "p-values")


@pytest.fixture(scope="module")
def window() -> Iterator[Page]:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page(reduced_motion="reduce")
        browser.close()


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return all pages by name."""
    folder = tmp_path_factory.mktemp("pages")
    pages = {name: write_report(report, folder / f"{name}.html") for name, report in REPORTS.items()}
    named: dict[str, Any] = {"facts": {"Scores": "W" * 200}, "class_names": (NASTY, "bee", "cat")}
    named["parts"] = {"monday.csv": 1, NASTY: 701}
    pages["changed"] = write_monitor(changed(), folder / "changed.html", title=f"Camera {NASTY}", **named)
    pages["quiet"] = write_monitor(quiet(), folder / "quiet.html")
    return pages


@contextmanager
def opened(window: Page, path: Path, *, width: int = 1280, scheme: Any = "light") -> Iterator[Page]:
    """Open a page, and check that it causes no errors and no network requests."""
    errors: list[str] = []
    requests: list[str] = []
    listeners: dict[Any, Any] = {
        "console": lambda message: errors.append(message.text),
        "pageerror": lambda error: errors.append(str(error)),
        "dialog": lambda dialog: errors.append(dialog.message),
        "request": lambda request: requests.append(request.url),
    }
    for event, listener in listeners.items():
        window.on(event, listener)
    window.emulate_media(color_scheme=scheme)
    window.set_viewport_size({"width": width, "height": 740})
    window.goto(path.as_uri())
    yield window
    for event, listener in listeners.items():
        window.remove_listener(event, listener)
    assert errors == []
    assert [url for url in requests if not url.startswith("data:")] == [path.as_uri()]


def text_of(page: Page, selector: str) -> str:
    return page.locator(selector).inner_text()


def visible(page: Page, selector: str) -> list[str]:
    return [one.inner_text() for one in page.locator(f"{selector}:visible").all()]


def check_rates(page: Page, report: Report) -> None:
    """Check the share and the number of every set that are flagged at the displayed threshold."""
    threshold = page.evaluate("data.grid[state.step]")
    for row, one in enumerate(report.sets):
        flagged = int(sum(one.regret > threshold))
        shown = [text_of(page, f".outcome tr[data-set='{row}'] .{name}") for name in ("rate", "flagged", "count")]
        assert float(shown[0].rstrip("%")) == pytest.approx(100 * flagged / len(one), abs=0.051)
        assert shown[1:] == [f"{flagged:,}", f"{len(one):,}"]


@pytest.mark.parametrize("name", [*REPORTS, "changed", "quiet"])
def test_layout_fits_a_phone_and_texts_have_contrast(window: Page, paths: dict[str, Path], name: str) -> None:
    for scheme in ("light", "dark"):
        with opened(window, paths[name], width=360, scheme=scheme) as page:
            for summary in page.locator("details:visible > summary").all():
                summary.click()
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            assert page.evaluate(CONTRAST) == []
            assert page.evaluate("document.getAnimations().length") == 0
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", background))) < 200) == (scheme == "dark")


def test_threshold_moves_by_keyboard_slider_and_plot(window: Page, paths: dict[str, Path]) -> None:
    report = comparison()
    with opened(window, paths["comparison"]) as page:
        start = page.evaluate("data.grid[state.step]")
        steps = {start}
        page.locator("#threshold").focus()
        for key in ("ArrowRight", "PageUp", "PageDown", "Home", "End"):
            page.keyboard.press(key)
            check_rates(page, report)
            steps.add(page.evaluate("data.grid[state.step]"))
            if key in {"Home", "End"}:
                assert set(page.locator(".decision").all_text_contents()) == {"flagged" if key == "Home" else "kept"}
        assert len(steps) >= 5
        assert str(page.locator("#threshold").get_attribute("aria-valuetext")).endswith(
            "flags 0.0% of known, 0.0% of far"
        )
        for selector in ("#threshold", "#histogram"):
            box, plot = page.locator(selector).bounding_box(), page.locator("#histogram").bounding_box()
            assert box is not None
            assert plot is not None
            for share in (0.3, 0.8):
                page.locator(selector).click(position={"x": share * box["width"], "y": box["height"] / 2})
                check_rates(page, report)
                line = float(page.locator("#histogram .threshold").get_attribute("x1") or "nan")
                at = box["x"] + share * box["width"]
                assert plot["x"] + line == pytest.approx(at, abs=2), "the line is above the thumb, and where one clicks"
        page.locator("#reset").click()
        assert page.evaluate("data.grid[state.step]") == start
        assert page.locator("#reset").is_disabled()


def test_set_is_selected_by_keyboard(window: Page, paths: dict[str, Path]) -> None:
    report = comparison()
    known, *others = report.sets
    with opened(window, paths["comparison"]) as page:
        for one in others:
            labels = [0] * len(known) + [1] * len(one)
            for name, selector in (("regret", ".value"), ("baseline", ".details")):
                area = 100 * roc_auc_score(labels, np.concatenate([getattr(known, name), getattr(one, name)]))
                assert f"{area:.1f}%" in text_of(page, f"[data-metric=auroc] {selector}")
            assert one.name in text_of(page, "#histogram-legend")
            assert one.name in str(page.locator("#histogram").get_attribute("aria-label"))
            hidden = [gallery.get_attribute("data-set") for gallery in page.locator(".set-gallery[hidden]").all()]
            assert hidden == [str(3 - report.sets.index(one))]
            page.locator("input[name=set]:checked").focus()
            page.keyboard.press("ArrowRight")
        assert page.locator("input[name=set]:checked").get_attribute("value") == "1"


def test_images_have_alt_texts_and_samples_without_a_regret_are_flagged(window: Page, paths: dict[str, Path]) -> None:
    with opened(window, paths["comparison"]) as page:
        widths = page.evaluate("[...document.images].map((image) => image.naturalWidth)")
        assert (len(widths), min(widths)) == (3 * 24, 8)
        assert all(image.get_attribute("alt") for image in page.locator("img").all())
        page.evaluate("document.querySelector('.sample').dataset.regret = 'nan'")
        page.locator("#threshold").focus()
        for key in ("Home", "End"):
            page.keyboard.press(key)
            assert page.locator(".decision").first.text_content() == "flagged"


@pytest.mark.parametrize(
    ("name", "chart"),
    [(name, chart) for name, charts in CHARTS.items() for chart in charts]
    + [(name, chart) for name in ("changed", "quiet") for chart in MONITOR_CHARTS],
)
def test_charts_are_read_by_pointer_and_by_keyboard(
    window: Page, paths: dict[str, Path], name: str, chart: str
) -> None:
    with opened(window, paths[name]) as page:
        readout, plot = page.locator(f"#{chart}-readout"), page.locator(f"#{chart}")
        hint = readout.inner_text()
        plot.hover()
        assert readout.inner_text() != hint
        page.mouse.move(0, 0)
        assert readout.inner_text() == hint
        plot.focus()
        texts = {}
        for key in ("Home", "End", "ArrowRight", "a", "Escape"):
            page.keyboard.press(key)
            texts[key] = readout.inner_text()
        assert texts["End"] == texts["ArrowRight"] == texts["a"] != hint
        assert texts["Home"] != texts["End"]
        assert texts["Escape"] == hint
        assert len(str(plot.get_attribute("aria-label"))) > 30
        page.locator(f"details[data-table={chart}] summary").click()
        page.wait_for_selector(f"details[data-table={chart}] td")
        rows = page.locator(f"details[data-table={chart}] tbody tr").count()
        assert rows == CHARTS.get(name, {}).get(chart, rows)


def read(page: Page, chart: str, *keys: str) -> str:
    page.locator(f"#{chart}").focus()
    for key in keys:
        page.keyboard.press(key)
    return text_of(page, f"#{chart}-readout")


def test_readouts_are_correct(window: Page, paths: dict[str, Path]) -> None:
    known, far, _ = comparison().sets
    with opened(window, paths["comparison"]) as page:
        edges = page.evaluate("data.edges")
        last = [100 * np.mean(one.regret >= edges[-2]) for one in (known, far)]
        assert f"{last[0]:.1f}% of known, {last[1]:.1f}% of far" in read(page, "histogram", "End")
        kept = np.sort(far.regret)[int(0.1 * len(far.regret))]
        shown = re.fullmatch(r"FPR 10%: TPR pNML ([\d.]+)%, Baseline [\d.]+%", read(page, "roc", *["ArrowRight"] * 11))
        assert shown
        assert float(shown[1]) == pytest.approx(100 * np.mean(known.regret < kept), abs=1.0)
        assert read(page, "spectrum", "Home") == "Eigenvalue 1 of 64: 1"
    report = calibrated()
    assert report.calibration is not None
    scores = report.calibration.scores
    with opened(window, paths["calibrated"]) as page:
        check_rates(page, report)
        flagged = int((scores > report.calibration.value).sum())
        assert text_of(page, "tr[data-set=calibration] .flagged") == str(flagged)
        first = 100 * np.mean(scores < page.evaluate("data.edges")[1])
        assert f"{first:.1f}% of Calibration" in read(page, "histogram", "Home")
        for number in (1, 2):
            page.locator(f"input[name=set][value='{number}']").check()
            one = report.sets[number]
            small = np.mean((1 + (scores[:, None] >= one.regret).sum(axis=0)) / 401 <= 0.05)
            assert read(page, "pvalues", "Home") == f"p-value 0 to 0.05: {100 * small:.1f}% of {one.name}"
    monitor = changed()
    since = monitor.periods[-1]
    with opened(window, paths["changed"]) as page:
        small = 100 * since.p_values[0] / since.samples
        assert f"{small:.1f}% of samples {since.first:,} to {since.last:,}" in read(page, "p-values", "Home")
        assert f"to {monitor.count:,} ({NASTY}): evidence 10^" in read(page, "evidence", "End")
        rate = page.evaluate("data.rates[0]")
        start = f"Samples 1 to {rate['last']:,} (monday.csv): {100 * rate['share']:.1f}% flagged"
        assert start in read(page, "rates", "Home")


def test_answers_and_downloads_are_of_the_selected_and_the_known_set(
    window: Page, paths: dict[str, Path], tmp_path: Path
) -> None:
    report = calibrated()
    assert report.calibration is not None
    strange = report.sets[1]
    with opened(window, paths["calibrated"]) as page:
        assert visible(page, ".verdict .set-name") == ["strange", "known"]
        before = visible(page, ".verdict .answer")
        assert before[0].endswith("this is not the data you calibrated on.")
        with page.expect_download() as started:
            page.locator(".download:visible").first.click()
        started.value.save_as(tmp_path / "flagged.csv")
        page.locator("#threshold").focus()
        page.keyboard.press("Home")
        assert visible(page, ".verdict .answer") == before, "the answer is of the calibrated threshold"
        page.locator("input[name=set][value='2']").check()
        assert visible(page, ".verdict .set-name") == ["new", "known"]
        assert text_of(page, "[data-metric=auroc] .value") == "–", "nobody knows which of them are new"
        assert text_of(page, "#roc-legend") == ""
        page.locator(".in-short a").first.click()
        page.wait_for_url("**#definition-regret")
        assert page.locator("#definition-regret").is_visible()
    order = np.argsort(-strange.regret)[: int((strange.regret > report.calibration.value).sum())]
    with (tmp_path / "flagged.csv").open(encoding="utf-8", newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == [f"strange-{number}.png" for number in order]


def test_depths_follow_the_threshold_and_the_selected_set(window: Page, paths: dict[str, Path]) -> None:
    report = layered()
    with opened(window, paths["layered"]) as page:
        for number, key in ((1, "PageUp"), (1, "Home"), (2, "End"), (2, "Home")):
            page.locator(f"input[name='set'][value='{number}']").check()
            page.locator("#threshold").focus()
            page.keyboard.press(key)
            one = report.sets[number]
            assert one.strangest is not None
            strangest = one.strangest[one.regret > page.evaluate("data.grid[state.step]")]
            for row, depth in enumerate(report.depths):
                assert text_of(page, f".depths tr[data-depth='{row}'] .flagged") == str(sum(strangest == depth.column))
            assert text_of(page, "#depths-caption").startswith(f"{len(strangest):,} flagged samples of {one.name}")
        totals = [page.locator(f"[data-total='{kind}']").inner_text() for kind in ("early", "late", "lengths")]
        assert sum(float(total.split("%")[0]) for total in totals) == pytest.approx(100, abs=0.16)
        assert page.locator(".sample .away:visible").count() == page.locator(".sample.is-flagged:visible").count()


def test_pages_without_javascript_have_answers_tables_and_images(window: Page, paths: dict[str, Path]) -> None:
    browser = window.context.browser
    assert browser is not None
    page = browser.new_page(java_script_enabled=False)
    page.goto(paths["comparison"].as_uri())
    assert "need JavaScript" in page.locator("noscript").first.inner_text()
    assert page.locator("td.number.best").first.is_visible()
    assert page.locator("img").last.is_visible()
    page.goto(paths["changed"].as_uri())
    assert "no longer looks like the calibration data" in page.locator(".answer").inner_text()
    assert page.locator("td.number").first.is_visible()
    page.close()
