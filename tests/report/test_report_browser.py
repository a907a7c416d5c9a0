"""Test the page in a browser: charts, slider, keyboard, accessibility and layout."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

from pnml.report import Report, ScoredSet, Table, write_report

from .factories import calibrated, comparison, layered, scored, unlabelled

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


@pytest.fixture(scope="module")
def window() -> Iterator[Page]:
    with api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser.new_page(reduced_motion="reduce")
        browser.close()


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(comparison(), tmp_path_factory.mktemp("report") / "report.html")


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


def rate(page: Page, row: int) -> float:
    found = re.search(r"([\d.]+)%", text_of(page, f".outcome tr[data-set='{row}'] .rate"))
    assert found
    return float(found[1])


def check_rates(page: Page, report: Report) -> None:
    """Check the share and the number of every set that are flagged at the displayed threshold."""
    threshold = page.evaluate("data.grid[state.step]")
    for row, one in enumerate(report.sets):
        flagged = sum(value > threshold for value in one.regret)
        assert rate(page, row) == pytest.approx(100 * flagged / len(one), abs=0.051)
        assert text_of(page, f".outcome tr[data-set='{row}'] .count") == f"{len(one):,}"
        assert text_of(page, f".outcome tr[data-set='{row}'] .flagged") == f"{flagged:,}"


def test_slider_changes_rates_by_keyboard(window: Page, compared: Path) -> None:
    report = comparison()
    with opened(window, compared) as page:
        check_rates(page, report)
        assert rate(page, 0) == pytest.approx(5.0, abs=0.2)
        rates = {rate(page, 0)}
        page.locator("#threshold").focus()
        for key, times in (("ArrowRight", 10), ("PageUp", 1), ("PageDown", 4), ("Home", 1), ("End", 1)):
            for _ in range(times):
                page.keyboard.press(key)
            check_rates(page, report)
            rates.add(rate(page, 0))
        assert len(rates) == 5
        assert rate(page, 0) == 0.0
        assert page.evaluate("data.grid[state.step]") == max(one.regret.max() for one in report.sets)
        text = page.locator("#threshold").get_attribute("aria-valuetext")
        assert text is not None
        assert text.endswith("nats: flags 0.0% of known, 0.0% of far")
        page.locator("#reset").click()
        check_rates(page, report)
        assert rate(page, 0) == pytest.approx(5.0, abs=0.2)
        assert page.locator("#reset").is_disabled()


def test_slider_changes_rates_by_pointer(window: Page, compared: Path) -> None:
    with opened(window, compared) as page:
        slider = page.locator("#threshold")
        for share in (0.3, 0.8):
            box, plot = slider.bounding_box(), page.locator("#histogram").bounding_box()
            assert box is not None
            assert plot is not None
            slider.click(position={"x": share * box["width"], "y": box["height"] / 2})
            check_rates(page, comparison())
            line = float(page.locator("#histogram .threshold").get_attribute("x1") or "nan")
            assert plot["x"] + line == pytest.approx(
                box["x"] + share * box["width"], abs=2
            )  # the line is above the thumb


def test_set_is_selected_by_keyboard(window: Page, compared: Path) -> None:
    report = comparison()
    known, far, near = report.sets
    with opened(window, compared) as page:
        for one in (far, near):
            labels = [0] * len(known) + [1] * len(one)
            shown = text_of(page, "[data-metric=auroc] .value")
            expected = 100 * roc_auc_score(labels, np.concatenate([known.regret, one.regret]))
            assert float(shown.rstrip("%")) == pytest.approx(expected, abs=0.051)
            assert known.baseline is not None
            assert one.baseline is not None
            baseline = 100 * roc_auc_score(labels, np.concatenate([known.baseline, one.baseline]))
            assert f"Baseline {baseline:.1f}%" in text_of(page, "[data-metric=auroc] .details")
            assert one.name in text_of(page, "#histogram-legend")
            assert one.name in str(page.locator("#histogram").get_attribute("aria-label"))
            hidden = [gallery.get_attribute("data-set") for gallery in page.locator(".set-gallery[hidden]").all()]
            assert hidden == [str(3 - report.sets.index(one))]
            page.locator("input[name=set]:checked").focus()
            page.keyboard.press("ArrowRight")
        assert page.locator("input[name=set]:checked").get_attribute("value") == "1"


def test_images_load_and_have_alt_texts(window: Page, compared: Path) -> None:
    with opened(window, compared) as page:
        widths = page.evaluate("[...document.images].map((image) => image.naturalWidth)")
        assert len(widths) == 3 * 24
        assert min(widths) > 0
        assert all(image.get_attribute("alt") for image in page.locator("img").all())


def test_decisions_follow_the_threshold(window: Page, compared: Path) -> None:
    with opened(window, compared) as page:
        page.locator("#threshold").focus()
        for key, decision in (("Home", "flagged"), ("End", "kept")):
            page.keyboard.press(key)
            assert set(page.locator(".decision").all_text_contents()) == {decision}


def test_the_threshold_is_drawn_below_the_labels_that_it_may_cross(window: Page, compared: Path) -> None:
    with opened(window, compared) as page:
        drawn = "one => [...one.parentElement.children].map(child => child.getAttribute('class'))"
        classes = page.locator("line.threshold").evaluate(drawn)
        assert classes.count("note") >= 2
        assert "note" not in classes[: classes.index("threshold")]


def test_a_sample_without_a_regret_is_flagged_at_every_threshold(window: Page, compared: Path) -> None:
    with opened(window, compared) as page:
        page.evaluate("document.querySelector('.sample').dataset.regret = 'nan'")
        page.locator("#threshold").focus()
        for key in ("Home", "End"):
            page.keyboard.press(key)
            assert page.locator(".decision").first.text_content() == "flagged"


@pytest.mark.parametrize("chart", ["histogram", "roc", "spectrum"])
def test_charts_are_read_by_pointer_and_by_keyboard(window: Page, compared: Path, chart: str) -> None:
    with opened(window, compared) as page:
        readout = page.locator(f"#{chart}-readout")
        hint = readout.inner_text()
        plot = page.locator(f"#{chart}")
        plot.hover()
        by_pointer = readout.inner_text()
        page.mouse.move(0, 0)
        assert readout.inner_text() == hint
        plot.focus()
        texts = []
        for key in ("ArrowRight", "ArrowRight", "ArrowLeft", "End", "Home", "Escape", "ArrowLeft", "a"):
            page.keyboard.press(key)
            texts.append(readout.inner_text())
        assert len({hint, by_pointer, texts[0], texts[1], texts[3]}) == 5
        assert texts[2] == texts[4] == texts[0]
        assert texts[5] == hint
        assert texts[6] == texts[7] == texts[3]
        page.keyboard.press("Tab")
        assert readout.inner_text() == hint
        assert len(str(plot.get_attribute("aria-label"))) > 30


def test_chart_readouts_are_correct(window: Page, compared: Path) -> None:
    known, far, _ = comparison().sets
    with opened(window, compared) as page:
        page.locator("#histogram").focus()
        page.keyboard.press("End")
        edges = page.evaluate("data.edges")
        last = [100 * np.mean(one.regret >= edges[-2]) for one in (known, far)]
        assert f"{last[0]:.1f}% of known, {last[1]:.1f}% of far" in text_of(page, "#histogram-readout")
        page.locator("#roc").focus()
        for _ in range(11):
            page.keyboard.press("ArrowRight")
        kept = np.sort(far.regret)[: int(0.1 * len(far.regret))]
        tpr = 100 * np.mean(known.regret < np.sort(far.regret)[len(kept)])
        found = re.fullmatch(r"FPR 10%: TPR pNML ([\d.]+)%, Baseline [\d.]+%", text_of(page, "#roc-readout"))
        assert found
        assert float(found[1]) == pytest.approx(tpr, abs=1.0)
        page.locator("#spectrum").focus()
        page.keyboard.press("Home")
        assert text_of(page, "#spectrum-readout") == "Eigenvalue 1 of 64: 1"


@pytest.mark.parametrize(("chart", "rows"), [("histogram", 60), ("roc", 21), ("spectrum", 60)])
def test_every_chart_has_a_table(window: Page, compared: Path, chart: str, rows: int) -> None:
    with opened(window, compared) as page:
        page.locator(f"details[data-table={chart}] summary").click()
        page.wait_for_selector(f"details[data-table={chart}] td")
        assert page.locator(f"details[data-table={chart}] tbody tr").count() == rows


def reports() -> dict[str, Report]:
    wide = Table(title="Wide", columns=tuple(f"column {n}" for n in range(30)), rows=(("x",) * 30,))
    only_in = Report(title="Known", facts={}, sets=(scored("known", "in", -1, 30, 0),), spectrum=np.array([1.0]))
    same = ScoredSet(name="W" * 80, role="unlabelled", regret=np.array([0.5, 0.5]))
    mixed = (scored("known", "in", -1, 30, 0), scored("new", "out", 0, 30, 1), scored("other", "unlabelled", 0, 9, 2))
    return {
        "comparison": comparison(),
        "unlabelled": unlabelled(),
        "tables": Report(title="Tables", facts={"Command": "x" * 200}, sets=(), tables=(wide,)),
        "in only": only_in,
        "all the same": Report(title="W" * 80, facts={"Command": "W" * 200}, sets=(same,)),
        "mixed": Report(title="Mixed", facts={}, sets=mixed),
        "calibrated": calibrated(),
    }


@pytest.mark.parametrize("name", reports())
def test_layout_fits_a_phone_and_texts_have_contrast(window: Page, tmp_path: Path, name: str) -> None:
    path = write_report(reports()[name], tmp_path / "report.html")
    for scheme in ("light", "dark"):
        with opened(window, path, width=360, scheme=scheme) as page:
            assert page.evaluate("document.documentElement.scrollWidth") <= 360
            assert page.evaluate(CONTRAST) == []
            assert page.evaluate("document.getAnimations().length") == 0
            background = page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", background))) < 200) == (scheme == "dark")


def test_selected_unlabelled_set_has_no_metrics(window: Page, tmp_path: Path) -> None:
    path = write_report(reports()["mixed"], tmp_path / "report.html")
    with opened(window, path) as page:
        page.locator("input[value='2']").check()
        assert text_of(page, "[data-metric=auroc] .value") == "–"
        assert text_of(page, "[data-metric=auroc] .details") == ""
        assert text_of(page, "#roc-legend") == ""
        page.locator("#roc").focus()
        page.keyboard.press("Home")
        check_rates(page, reports()["mixed"])


def test_counts_of_an_unlabelled_set_follow_the_threshold(window: Page, tmp_path: Path) -> None:
    report = unlabelled()
    path = write_report(report, tmp_path / "report.html")
    with opened(window, path) as page:
        page.locator("#threshold").focus()
        for _ in range(10):
            page.keyboard.press("ArrowLeft")
        threshold = page.evaluate("data.grid[state.step]")
        flagged = int((report.sets[0].regret > threshold).sum())
        assert text_of(page, "[data-count=flagged] .value") == str(flagged)
        assert text_of(page, "[data-count=kept] .value") == str(90 - flagged)


def test_controls_are_reachable_by_tab(window: Page, compared: Path) -> None:
    with opened(window, compared) as page:
        reached = set()
        for _ in range(30):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id || document.activeElement.name"))
        assert {"set", "histogram", "threshold", "roc", "spectrum"} <= reached


def test_page_without_javascript_has_tables_and_images(window: Page, compared: Path) -> None:
    browser = window.context.browser
    assert browser is not None
    page = browser.new_page(java_script_enabled=False)
    page.goto(compared.as_uri())
    assert "need JavaScript" in page.locator("noscript").first.inner_text()
    assert page.locator("td.number.best").first.is_visible()
    assert page.locator("img").last.is_visible()
    page.close()


def test_depths_follow_the_threshold_and_the_selected_set(window: Page, tmp_path: Path) -> None:
    report = layered()
    path = write_report(report, tmp_path / "report.html")

    def check(page: Page, one: ScoredSet) -> None:
        flagged = one.regret > page.evaluate("data.grid[state.step]")
        assert one.strangest is not None
        for position, name in enumerate(report.depths):
            column = 0 if name == "embedding" else position + 1
            found = int(np.sum(flagged & (one.strangest == column)))
            row = f".depths tr[data-depth='{position}']"
            assert text_of(page, f"{row} .flagged") == f"{found:,}"
            shown = text_of(page, f"{row} .rate")
            assert (
                shown == "–"
                if not flagged.any()
                else float(shown[:-1]) == pytest.approx(100 * found / flagged.sum(), abs=0.051)
            )
        assert text_of(page, "#depths-caption").startswith(f"{flagged.sum():,} flagged samples of {one.name}")

    for scheme in ("light", "dark"):
        with opened(window, path, scheme=scheme) as page:
            check(page, report.sets[1])
            assert page.evaluate(CONTRAST) == []
            page.locator("#threshold").focus()
            for key in ("PageUp", "End", "Home"):
                page.keyboard.press(key)
                check(page, report.sets[1])
            page.locator("input[name='set'][value='2']").check()
            check(page, report.sets[2])
            totals = [page.locator(f"[data-total='{which}']").inner_text() for which in ("early", "late")]
            assert sum(float(total.split("%")[0]) for total in totals) == pytest.approx(100, abs=0.11)
            assert page.locator(".sample .away:visible").count() == page.locator(".sample.is-flagged:visible").count()


def test_depths_fit_a_narrow_screen(window: Page, tmp_path: Path) -> None:
    path = write_report(layered(), tmp_path / "report.html")
    with opened(window, path, width=360) as page:
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
