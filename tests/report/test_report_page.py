"""Test the contents of the HTML page and compare its numbers with scikit-learn."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from io import BytesIO
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.metrics import auc, roc_auc_score, roc_curve

from pnml.report import Report, ScoredSet, Table
from pnml.report.monitored import render_monitor
from pnml.report.page import render
from pnml.report.page_data import BINS, P_BINS, STEPS
from pnml.report.thumbnails import GALLERY

from .factories import NASTY, calibrated, changed, comparison, page_data_of

if TYPE_CHECKING:
    from pathlib import Path

LINKS = {
    "https://arxiv.org/abs/2110.09246",
    "https://arxiv.org/abs/2104.08279",
    "https://en.wikipedia.org/wiki/Sensitivity_and_specificity",
    "https://en.wikipedia.org/wiki/Receiver_operating_characteristic",
}
"""Where a reader may go on."""


class Page(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "img", "input", "br", "line", "circle"}:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        if tag != "circle":
            assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text() -> str:
    return render(comparison())


@pytest.fixture(scope="module", params=["report", "monitor"])
def hostile(request: pytest.FixtureRequest) -> str:
    """Return a page whose title, facts, sets, classes, tables and parts are named to do harm."""
    if request.param == "report":
        return render(comparison(class_names=(NASTY, NASTY, NASTY)))
    names = {"class_names": ("ant", NASTY, "bee"), "facts": {NASTY: NASTY}, "parts": {NASTY: 1}}
    return render_monitor(changed(), title=NASTY, **names)  # type: ignore[arg-type]


def test_names_are_text_and_never_markup(hostile: str) -> None:
    page = Page(hostile)
    assert page.open == []
    tags = [tag for tag, _ in page.tags]
    assert (tags.count("script"), tags.count("title")) == (2, 1)
    assert "<script>alert" not in hostile
    assert "</title> {{ 7 * 7 }}" not in hostile
    assert "&lt;/title&gt; {{ 7 * 7 }}" in hostile, "a name is no template either"


@given(st.text(max_size=30), st.text(max_size=30))
def test_page_is_well_formed_for_any_text(name: str, fact: str) -> None:
    one = ScoredSet(name=name, role="unlabelled", regret=np.array([0.1, 0.2, 0.3]), ids=[name, fact, ""])
    page = render(Report(title=name, facts={name: fact}, sets=(one,), class_names=(fact,)))
    assert Page(page).open == []
    assert page_data_of(page)["sets"][0]["name"] == name


def test_page_loads_nothing_and_allows_only_its_own_script_and_style(hostile: str) -> None:
    page = Page(hostile)
    for tag, attributes in page.tags:
        assert not attributes.keys() & {"srcset", "action", "formaction", "data", "poster", "style"}
        assert not [name for name in attributes if name.startswith("on")]
        for name in {"src", "href"} & attributes.keys():
            address = str(attributes[name])
            is_link = tag == "a" and (address in LINKS or address.startswith("#"))  # which a reader has to follow
            assert is_link or address.startswith("data:"), (tag, name)
    inside = {tag: re.findall(rf"<{tag}>(.*?)</{tag}>", hostile, re.DOTALL) for tag in ("style", "script")}
    assert not re.search(r"@import|url\((?!#)|https?://(?!www\.w3\.org/2000/svg)", str(inside))
    policy = str(next(attributes["content"] for _, attributes in page.tags if "http-equiv" in attributes))
    for tag, (code,) in inside.items():
        assert f"{tag}-src 'sha256-{base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_headings_are_ordered_ids_unique_and_language_set(hostile: str) -> None:
    page = Page(hostile)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert (levels[0], levels.count(1)) == (1, 1)
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert ("html", {"lang": "en"}) in page.tags
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_metrics_and_curves_agree_with_scikit_learn(text: str) -> None:
    page = page_data_of(text)
    ind, *others = comparison().sets
    for one, data in zip(others, page["sets"][1:], strict=True):
        for score, name in (("regret", "pnml"), ("baseline", "baseline")):
            values = np.concatenate([getattr(ind, score), getattr(one, score)])
            kept = np.r_[np.ones(len(ind)), np.zeros(len(one))]
            fpr, tpr, _ = roc_curve(kept, -values, drop_intermediate=False)
            metrics, roc = data["metrics"][name], data["roc"][name]
            assert metrics["auroc"] == pytest.approx(100 * roc_auc_score(kept, -values))
            assert metrics["tnr_at_tpr95"] == pytest.approx(100 * (1 - fpr[tpr >= 0.95].min()))
            assert metrics["detection_accuracy"] == pytest.approx(100 * (0.5 + (tpr - fpr).max() / 2))
            on_curve = {(round(100 * x, 3), round(100 * y, 3)) for x, y in zip(fpr, tpr, strict=True)}
            shown = list(zip(roc["fpr"], roc["tpr"], strict=True))
            assert set(shown) <= on_curve
            assert (shown[0], shown[-1]) == ((0, 0), (100, 100))
            assert auc(roc["fpr"], roc["tpr"]) / 100 == pytest.approx(metrics["auroc"], abs=0.5)
            assert all(f">{metric:.1f}</td>" in text for metric in metrics.values())
    mean = np.mean([data["metrics"]["pnml"]["auroc"] for data in page["sets"][1:]])
    assert re.search(rf'"row">Mean</th>\s*<td class="number[^"]*">[\d.]+</td>\s*<td[^>]*>{mean:.1f}', text)


def test_counts_are_exact_at_every_threshold() -> None:
    report = calibrated()
    assert report.calibration is not None
    known, page = report.calibration.scores, page_data_of(render(report))
    grid, edges = np.asarray(page["grid"]), page["edges"]
    assert STEPS <= len(grid) <= STEPS + 2
    assert (np.diff(grid) > 0).all()
    assert grid[page["start"]] == report.calibration.value
    sets = [
        *((one.regret, data) for one, data in zip(report.sets, page["sets"], strict=True)),
        (known, page["calibration"]),
    ]
    for regret, data in sets:
        assert data["kept"] == [int((regret <= threshold).sum()) for threshold in grid]
        inner = [int(((regret >= low) & (regret < high)).sum()) for low, high in pairwise(edges)][1:-1]
        assert data["bins"][1:-1] == inner
        assert (sum(data["bins"]), len(data["bins"])) == (len(regret), BINS)
        assert data["median"] == pytest.approx(float(np.median(regret)))
    for one, data in zip(report.sets, page["sets"], strict=True):
        expected = [0] * P_BINS
        for value in one.regret:
            count = 1 + int((known >= value).sum())
            expected[-(-count * P_BINS // (1 + len(known))) - 1] += 1  # in whole numbers: no rounding
        assert data["pBins"] == expected


def test_best_value_of_a_group_is_bold_after_rounding_and_charted() -> None:
    table = Table(
        title="T",
        columns=("Set", "Words", ("A", "x"), ("A", "y"), ("B", "x")),
        rows=(("s", "w", 99.96, 100.0, None), ("t", "v", 3.0, 2.0, 1.0)),
        note="A <note>.",
        charted="y",
    )
    page = render(Report(title="", facts={}, sets=(), tables=(table,)))
    assert re.findall(r'<td class="number best">([\d.]+)</td>', page) == ["100.0", "100.0", "3.0", "1.0"]
    assert '<th scope="colgroup" colspan="2" class="group">A</th>' in page
    assert "<td>w</td>" in page
    assert "A &lt;note&gt;." in page
    assert page_data_of(page) == {"sets": []}
    dots = re.findall(r'<circle class="(\w+)" cx="([\d.]+)".*?<title>(.*?)</title>', page)
    assert [text for kind, _, text in dots if kind == "leading"] == ["y 100.0", "y 2.0"]
    places = {text: float(x) for _, x, text in dots}
    assert places["y 100.0"] == 468, "the end of the axis"
    assert places["x 1.0"] < places["y 2.0"] < places["x 3.0"]


def test_gallery_contains_the_extremes_with_predictions(text: str) -> None:
    ind = comparison().sets[0]
    assert ind.prediction is not None
    assert ind.probability is not None
    assert ind.labels is not None
    gallery = text.split('<section class="set-gallery')[3]  # the out-of-distribution sets come first
    cards = re.findall(r'<li class="sample" data-regret="([^"]+)">(.*?)</li>', gallery, re.DOTALL)
    order = np.argsort(ind.regret, kind="stable")
    rows = [*order[::-1][:GALLERY], *order[:GALLERY]]
    assert [float(regret) for regret, _ in cards] == ind.regret[rows].tolist()
    names = ["ant", "bee &lt;b&gt;", "cat", "class 3"]
    for row, (_, card) in zip(rows, cards, strict=True):
        assert f"<b>{names[ind.prediction[row]]}</b> {100 * ind.probability[row]:.1f}%" in card
        assert ("label: " in card) == (ind.prediction[row] != ind.labels[row])
        assert f"{ind.regret[row]:.3g} nats" in card
        assert f'alt="sample {row} of known, label {names[ind.labels[row]]}"' in card
        assert decoded(card)[0, 0, 0] == row % 256


def decoded(card: str) -> np.ndarray[Any, Any]:
    (encoded,) = re.findall(r'src="data:image/\w+;base64,([^"]+)"', card)
    with Image.open(BytesIO(base64.b64decode(encoded))) as image:
        return np.asarray(image)


def test_images_are_read_from_paths_with_placeholder_for_broken_files(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.png" for number in range(3)]
    Image.fromarray(np.zeros((300, 400, 3), dtype=np.uint8)).save(files[0])
    files[1].write_bytes(b"not an image")
    Image.fromarray(np.zeros((64, 64, 3), dtype=np.uint8)).save(files[2])
    regret, ids = np.array([0.1, 0.2, 0.3]), ["a", "b", "c"]
    one = ScoredSet(name="files", role="unlabelled", regret=regret, images=files, ids=ids)
    page = render(Report(title="", facts={}, sets=(one,)))
    assert 'width="128" height="96" alt="a of files"' in page
    assert [page.count(part) for part in ("data:image/jpeg", "data:image/png", "no image")] == [1, 1, 1]
    bare = render(Report(title="", facts={}, sets=(ScoredSet(name="x", role="unlabelled", regret=regret, ids=ids),)))
    assert "<img" not in bare
    assert "no image" not in bare
    assert 'title="b">b</span>' in bare
