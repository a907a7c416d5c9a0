"""Test the contents of the HTML page and compare its numbers with scikit-learn."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from io import BytesIO
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from sklearn.metrics import auc, roc_auc_score, roc_curve

from pnml.report import Report, ScoredSet, Table, write_report
from pnml.report.definitions import LINKS
from pnml.report.page import render
from pnml.report.page_data import BINS, P_BINS, STEPS
from pnml.report.thumbnails import GALLERY, extremes

from .factories import NASTY, calibrated, comparison, page_data_of, scored, unlabelled


class Page(HTMLParser):
    """The tags of a page with their attributes."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.open: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in {"meta", "link", "img", "input", "br"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def text() -> str:
    return render(comparison())


def test_write_report_is_atomic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "new" / "folder" / "report.html"
    assert write_report(comparison(), target) == target
    before = target.read_text(encoding="utf-8")
    assert before.endswith("</html>\n")

    def fail(path: Path, text: str, **_: object) -> int:
        path.write_bytes(text[:100].encode())
        raise OSError("the disk is full")

    monkeypatch.setattr(Path, "write_text", fail)
    with pytest.raises(OSError, match="the disk is full"):
        write_report(unlabelled(), target)
    assert target.read_text(encoding="utf-8") == before
    assert [path.name for path in target.parent.iterdir()] == ["report.html"]


def test_texts_are_escaped(text: str) -> None:
    assert "<script>alert" not in text
    assert "</title> $title" not in text
    assert "<b>" in text
    assert "bee <b>" not in text
    assert page_data_of(text)["sets"][2]["name"] == f"near {NASTY}"
    tags = Page(text).tags
    assert [tag for tag, _ in tags].count("script") == 2
    assert [tag for tag, _ in tags].count("title") == 1


@given(st.text(max_size=30), st.text(max_size=30))
def test_page_is_well_formed_for_any_text(name: str, fact: str) -> None:
    one = ScoredSet(name=name, role="unlabelled", regret=np.array([0.1, 0.2, 0.3]), ids=[name, fact, ""])
    page = render(Report(title=name, facts={name: fact}, sets=(one,), class_names=(fact,)))
    assert Page(page).open == []
    assert page_data_of(page)["sets"][0]["name"] == name


def test_page_loads_no_external_resources(text: str) -> None:
    links = {link.address for link in LINKS.values()}
    for tag, attributes in Page(text).tags:
        assert not attributes.keys() & {"srcset", "action", "formaction", "data", "poster"}
        for name in {"src", "href"} & attributes.keys():
            address = str(attributes[name])
            is_link = tag == "a" and (address in links or address.startswith("#"))  # which a reader has to follow
            assert is_link or address.startswith("data:"), (tag, name)
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
    for address in links:
        text = text.replace(f'href="{address}"', "")
    assert not re.search(r"@import|url\((?!#)|https?://(?!www\.w3\.org/2000/svg)", text)


def test_content_security_policy_allows_only_own_script_and_style(text: str) -> None:
    policy = next(attributes["content"] for tag, attributes in Page(text).tags if "http-equiv" in attributes)
    assert policy is not None
    for tag, rule in (("style", "style-src"), ("script", "script-src")):
        (inside,) = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
        assert f"{rule} 'sha256-{digest}';" in policy
    assert policy.startswith("default-src 'none';")
    assert "unsafe" not in policy


def test_headings_are_ordered_ids_unique_and_language_set(text: str) -> None:
    page = Page(text)
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch(r"h\d", tag)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert ("html", {"lang": "en"}) in page.tags
    ids = [attributes["id"] for _, attributes in page.tags if "id" in attributes]
    assert len(ids) == len(set(ids))


def test_metrics_and_curves_agree_with_scikit_learn(text: str) -> None:
    report, found = comparison(), page_data_of(text)
    ind, *others = report.sets
    for one, data in zip(others, found["sets"][1:], strict=True):
        for score, name in (("regret", "pnml"), ("baseline", "baseline")):
            values = np.concatenate([getattr(ind, score), getattr(one, score)])
            kept = np.r_[np.ones(len(ind)), np.zeros(len(one))]
            fpr, tpr, _ = roc_curve(kept, -values, drop_intermediate=False)
            metrics = data["metrics"][name]
            assert metrics["auroc"] == pytest.approx(100 * roc_auc_score(kept, -values))
            assert metrics["tnr_at_tpr95"] == pytest.approx(100 * (1 - fpr[tpr >= 0.95].min()))
            assert metrics["detection_accuracy"] == pytest.approx(100 * (0.5 + (tpr - fpr).max() / 2))
            on_curve = {(round(100 * x, 3), round(100 * y, 3)) for x, y in zip(fpr, tpr, strict=True)}
            shown = list(zip(data["roc"][name]["fpr"], data["roc"][name]["tpr"], strict=True))
            assert set(shown) <= on_curve
            assert (shown[0], shown[-1]) == ((0, 0), (100, 100))
            area = auc(data["roc"][name]["fpr"], data["roc"][name]["tpr"]) / 100
            assert area == pytest.approx(metrics["auroc"], abs=0.5)
            for metric in metrics.values():
                assert f">{metric:.1f}</td>" in text


def test_kept_counts_are_exact_at_every_threshold(text: str) -> None:
    found = page_data_of(text)
    grid = np.asarray(found["grid"])
    assert STEPS <= len(grid) <= STEPS + 2
    assert (np.diff(grid) > 0).all()
    for one, data in zip(comparison().sets, found["sets"], strict=True):
        assert data["kept"] == [int((one.regret <= threshold).sum()) for threshold in grid]
        assert sum(data["bins"]) == data["count"] == len(one)
        assert len(data["bins"]) == BINS
        assert data["kept"][0] == 0
        assert data["median"] == pytest.approx(float(np.median(one.regret)))
    assert max(data["count"] - data["kept"][-1] for data in found["sets"]) == 0


def test_calibration_scores_are_counted_like_those_of_a_set() -> None:
    report = calibrated()
    assert report.calibration is not None
    found, scores = page_data_of(render(report)), report.calibration.scores
    data, edges = found["calibration"], found["edges"]
    assert found["grid"][found["start"]] == report.calibration.value
    assert data["rate"] == 0.05
    assert data["kept"] == [int((scores <= threshold).sum()) for threshold in found["grid"]]
    inner = [int(((scores >= low) & (scores < high)).sum()) for low, high in pairwise(edges)][1:-1]
    assert data["bins"][1:-1] == inner
    assert sum(data["bins"]) == data["count"] == 400


def test_p_values_are_counted_in_twenty_intervals() -> None:
    report = calibrated()
    assert report.calibration is not None
    known = report.calibration.scores
    for one, data in zip(report.sets, page_data_of(render(report))["sets"], strict=True):
        expected = [0] * P_BINS
        for value in one.regret:
            count = 1 + int((known >= value).sum())
            expected[-(-count * P_BINS // (1 + len(known))) - 1] += 1  # in whole numbers: no rounding
        assert data["pBins"] == expected


@pytest.mark.parametrize("value", [-0.1, 1.5, np.nan])
def test_p_values_beyond_0_and_1_raise(value: float) -> None:
    with pytest.raises(ValueError, match=f"row 1 of 'new' has a p-value of {value}: expected a number from 0 to 1"):
        scored("new", "unlabelled", -1, 3, 0, p_value=[0.5, value, 1.0])


def test_given_p_values_and_decisions_need_no_calibration() -> None:
    one = scored("new", "unlabelled", -1, 3, 0, p_value=[0.05, 0.15, 1.0], is_ood=[True, False, False])
    page = render(Report(title="", facts={}, sets=(one,)))
    data = page_data_of(page)
    assert data["calibration"] is None
    assert [number for number, count in enumerate(data["sets"][0]["pBins"]) if count] == [0, 2, 19]
    assert 'id="pvalues"' in page
    assert "33.3% flagged." in page


@pytest.mark.parametrize(
    ("report", "words"), [(calibrated(), ("Regret", "p-value", "TNR")), (unlabelled(), ("Regret",))]
)
def test_words_are_explained_in_one_line_with_links(report: Report, words: tuple[str, ...]) -> None:
    page = render(report)
    lines = re.findall(r'<li><b>(.*?)</b>: (.*?) <a href="#(.*?)">More</a></li>', page)
    assert tuple(name for name, _, _ in lines) == words
    for name, text, anchor in lines:
        assert len(text) < 120
        (definition,) = re.findall(rf'<div id="{anchor}"><dt>{name}</dt><dd>(.*?)</dd></div>', page)
        assert f'<a href="{LINKS[name].address}"' in definition


@pytest.mark.parametrize(
    ("report", "origin"),
    [
        (comparison(), "flags 5% of known"),
        (comparison(threshold=0.123), "calibrated"),
        (unlabelled(), "flags 5% of all samples"),
    ],
)
def test_initial_threshold(report: Report, origin: str) -> None:
    found = page_data_of(render(report))
    start = found["grid"][found["start"]]
    assert found["origin"] == origin
    if report.threshold is not None:
        assert start == report.threshold
    else:
        regret = (report.ind_set or report.sets[0]).regret
        assert start in regret
        assert (regret <= start).mean() >= 0.95
        assert (regret < start).mean() < 0.95


@pytest.mark.parametrize("regret", [[0.0], [0.0, 0.0], [0.7], [0.0, 0.7], [1e-300, 1.0], [2.0, 2.0, 2.0]])
def test_bins_are_valid_for_scores_without_spread(regret: list[float]) -> None:
    found = page_data_of(
        render(Report(title="", facts={}, sets=(ScoredSet(name="a", role="in", regret=np.array(regret)),)))
    )
    edges = np.asarray(found["edges"])
    assert (np.diff(edges) > 0).all()
    assert edges[0] > 0
    assert edges[-1] >= max(regret)
    assert sum(found["sets"][0]["bins"]) == len(regret)
    assert "metrics" not in found["sets"][0]


def test_missing_baseline_is_displayed_as_dash() -> None:
    report = comparison(sets=(scored("in", "in", -3, 20, 0), scored("out", "out", 0, 20, 1, baseline=None)), tables=())
    page = render(report)
    assert page_data_of(page)["sets"][1]["metrics"]["baseline"] is None
    assert page.count("–</td>") == 3


def test_best_value_of_a_group_is_bold_after_rounding() -> None:
    table = Table(
        title="T",
        columns=("Set", "Words", ("A", "x"), ("A", "y"), ("B", "x")),
        rows=(("s", "w", 99.96, 100.0, None), ("t", "v", 3.0, 2.0, 1.0)),
        note="A <note>.",
    )
    page = render(Report(title="", facts={}, sets=(), tables=(table,)))
    bold = re.findall(r'<td class="number best">([\d.]+)</td>', page)
    assert bold == ["100.0", "100.0", "3.0", "1.0"]
    assert '<th scope="colgroup" colspan="2" class="group">A</th>' in page
    assert "<td>w</td>" in page
    assert "A &lt;note&gt;." in page
    assert page_data_of(page) == {"sets": []}


def test_table_contains_the_mean_over_sets(text: str) -> None:
    pnml = [data["metrics"]["pnml"]["auroc"] for data in page_data_of(text)["sets"][1:]]
    (mean,) = re.findall(r'<th scope="row">Mean</th><td class="number[^"]*">[\d.]+</td><td[^>]*>([\d.]+)', text)
    assert mean == f"{np.mean(pnml):.1f}"


def test_gallery_contains_the_extremes_with_predictions(text: str) -> None:
    report = comparison()
    ind = report.sets[0]
    gallery = text.split('<section class="set-gallery')[3]  # the out-of-distribution sets come first
    cards = re.findall(r'<li class="sample" data-regret="([^"]+)">(.*?)</li>', gallery, re.DOTALL)
    order = np.argsort(ind.regret, kind="stable")
    rows = [*order[::-1][:GALLERY], *order[:GALLERY]]
    assert [float(regret) for regret, _ in cards] == ind.regret[rows].tolist()
    names = ["ant", "bee &lt;b&gt;", "cat", "class 3"]
    assert ind.prediction is not None
    assert ind.probability is not None
    assert ind.labels is not None
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


@given(st.lists(st.floats(0, 2), min_size=1, max_size=60), st.integers(1, 20))
def test_extremes_are_disjoint_and_extreme(regret: list[float], count: int) -> None:
    most, least = extremes(np.asarray(regret), count)
    assert not set(most) & set(least)
    assert len(most) + len(least) == min(len(regret), 2 * count)
    middle = set(range(len(regret))) - set(most) - set(least)
    for row in middle:
        assert all(regret[one] <= regret[row] for one in most)
        assert all(regret[one] >= regret[row] for one in least)


def test_images_are_read_from_paths_with_placeholder_for_broken_files(tmp_path: Path) -> None:
    files = [tmp_path / f"{number}.png" for number in range(3)]
    Image.fromarray(np.zeros((300, 400, 3), dtype=np.uint8)).save(files[0])
    files[1].write_bytes(b"not an image")
    Image.fromarray(np.zeros((64, 64, 3), dtype=np.uint8)).save(files[2])
    one = ScoredSet(
        name="files", role="unlabelled", regret=np.array([0.1, 0.2, 0.3]), images=files, ids=["a", "b", "c"]
    )
    page = render(Report(title="", facts={}, sets=(one,)))
    assert page.count("data:image/jpeg") == 1
    assert 'width="128" height="96" alt="a of files"' in page
    assert page.count("data:image/png") == 1
    assert page.count("no image") == 1


def test_samples_without_images_are_listed_by_id() -> None:
    one = ScoredSet(name="rows", role="unlabelled", regret=np.array([0.1, 0.2]), ids=["first", "second"])
    page = render(Report(title="", facts={}, sets=(one,)))
    assert "<img" not in page
    assert "no image" not in page
    assert 'title="first">first</span>' in page


def test_page_size_does_not_depend_on_the_number_of_samples() -> None:
    rng = np.random.default_rng(0)
    sets = tuple(
        ScoredSet(name=role, role=role, regret=rng.exponential(1, 200_000), baseline=rng.random(200_000))
        for role in ("in", "out")
    )
    report = Report(title="", facts={}, sets=sets, spectrum=np.geomspace(1, 1e-9, 4096))
    assert len(render(report)) < 120_000
    large = scored(
        "large", "in", 0, 30, 0, images=np.random.default_rng(0).integers(0, 256, (30, 256, 256, 3), np.uint8)
    )
    assert len(render(Report(title="", facts={}, sets=(large,)))) < 400_000


def test_spectrum_contains_eigenvalues_above_rounding_error(text: str) -> None:
    spectrum = page_data_of(text)["spectrum"]
    assert (spectrum["rank"], spectrum["count"]) == (60, 64)
    assert spectrum["index"] == list(range(1, 61))
    assert spectrum["value"] == pytest.approx(np.geomspace(1, 1e-9, 60), rel=1e-3)
    assert spectrum["value"][-1] > 0


def test_unlabelled_set_has_counts_instead_of_metrics() -> None:
    page = render(unlabelled())
    assert "AUROC" not in page.split("<script")[0]
    assert 'data-count="flagged"' in page
    assert "roc" not in page_data_of(page)["sets"][0]
    assert 'id="roc"' not in page
    assert 'id="spectrum"' not in page
