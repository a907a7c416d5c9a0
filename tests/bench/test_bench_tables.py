"""The tables: every cell once, the differences right, and every format well formed."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from pnml.metrics import Metrics
from pnml_bench.paper import paper_cells
from pnml_bench.render import Format, render
from pnml_bench.results import Result, Scores
from pnml_bench.tables import Sources, Table, count
from pnml_bench.tables import build_tables as build_from


def build_tables(results: list[Result]) -> list[Table]:
    return build_from(Sources(results))


def run(key: tuple[str, str, str, str], alone: dict[str, float], plus: dict[str, float] | None) -> Result:
    """Return a result with the given metrics and 50 for all others."""
    names = ("auroc", "tnr_at_tpr95", "detection_accuracy", "aupr_in", "aupr_out", "fpr_at_tpr95_ood")

    def fill(some: dict[str, float]) -> Metrics:
        return Metrics(**{name: some.get(name, 50.0) for name in names})

    model, ind, ood, method = key
    scores = Scores(fill(alone), None if plus is None else fill(plus))
    study = "paper-oracle" if method == "odin" else "paper"
    return Result(model=model, ind=ind, ood=ood, method=method, study=study, scores=scores)


def half_of_everything() -> list[Result]:
    """Return a result for every run of the paper, with half of each of its numbers."""
    alone: dict[tuple[str, str, str, str], dict[str, float]] = {}
    plus: dict[tuple[str, str, str, str], dict[str, float]] = {}
    for cell in paper_cells():
        alone.setdefault(cell.key, {})[cell.metric] = cell.alone / 2
        plus.setdefault(cell.key, {})[cell.metric] = cell.plus_pnml / 2
    return [run(key, alone[key], plus[key]) for key in alone]


SVHN = ("densenet-bc-100", "cifar10", "svhn", "baseline")
SOME = [
    run(SVHN, {"auroc": 89.2}, {"auroc": 98.44}),
    run(("densenet-bc-100", "cifar10", "svhn", "odin"), {"auroc": 95.0}, None),
    Result(model="densenet-bc-100", ind="svhn", ood="isun", method="gram", reason="no <iSUN> & no {luck}_100%\nat all"),
    run(("resnet-18", "imagenet30", "uniform", "baseline"), {"auroc": 99.0}, {"auroc": 100.0}),
]


def varied() -> list[Result]:
    """Return one cell on the paper's network in all variants, one on a network trained anew, and re-made sets."""
    odin, energy = ("densenet-bc-100", "cifar10", "svhn", "odin"), ("wideresnet-40-2", "cifar10", "isun", "energy")
    remade = ("densenet-bc-100", "cifar10", "tinyimagenet_resize_nearest", "gram")
    by_study = {
        "paper": run(odin, {"auroc": 80.0}, {"auroc": 81.0}),
        "paper-oracle": run(odin, {"auroc": 90.0}, {"auroc": 91.0}),
        "paper-oracle-published": run(odin, {"auroc": 90.0}, {"auroc": 92.0}),
        "retrained": run(energy, {"auroc": 70.0}, {"auroc": 71.0}),
        "retrained-published": run(energy, {"auroc": 70.0}, {"auroc": 72.0}),
    }
    found = [replace(result, study=study) for study, result in by_study.items()]
    antialiased = run((*remade[:2], "tinyimagenet_resize", "gram"), {"auroc": 60.0}, {"auroc": 61.0})
    notes = {"notes": {"ood": "made anew, 32×32"}}
    found += [replace(antialiased, settings=notes)]
    found += [replace(run(remade, {"auroc": 99.0}, {"auroc": 99.5}), settings=notes)]
    found += [replace(run(("resnet-34", *SVHN[1:]), {}, {}), study="other")]
    reasons = {
        "resnet-34": "checkpoint absent: no resnet-34_svhn is published",
        "densenet-bc-100": "image set absent: lsun_crop",
    }
    found += [
        Result(model=model, ind="svhn", ood="lsun_crop", method="gram", reason=reason)
        for model, reason in reasons.items()
    ]
    return [*found, Result(model="resnet-34", ind="svhn", ood="isun", method="gram", reason=reasons["resnet-34"])]


VARIED = varied()


def records(tables: list[Table]) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(render(tables, Format.CSV))))


def test_csv_has_every_cell_of_the_paper_exactly_once() -> None:
    names = ("model", "ind", "ood", "method", "metric", "paper", "paper_plus_pnml")
    found = Counter(tuple(record[name] for name in names) for record in records(build_tables(SOME)))
    expected = Counter((*c.key, c.metric, str(c.alone), str(c.plus_pnml)) for c in paper_cells())
    assert found == expected
    assert found.total() == 664


def test_differences_are_ours_minus_the_papers() -> None:
    for record in records(build_tables(half_of_everything())):
        assert record["status"] == "run"
        for suffix in ("", "_plus_pnml"):
            paper = float(record[f"paper{suffix}"])
            assert float(record[f"ours{suffix}"]) == pytest.approx(paper / 2, abs=1e-4)
            assert float(record[f"difference{suffix}"]) == pytest.approx(-paper / 2, abs=1e-4)


def test_cells_not_run_have_their_reason() -> None:
    found = {(r["table"], r["ind"], r["ood"], r["method"]): r for r in records(build_tables(SOME))}
    absent = found["densenet-tnr", "svhn", "isun", "gram"]
    assert (absent["status"], absent["reason"]) == ("not run", "no <iSUN> & no {luck}_100% at all")
    assert found["resnet-tnr", "svhn", "isun", "gram"]["reason"] == "no result"
    assert absent["ours"] == absent["difference_plus_pnml"] == ""
    assert found["densenet-auroc", "cifar10", "svhn", "odin"]["ours_plus_pnml"] == ""


def test_counts_and_averages() -> None:
    cells = paper_cells()
    full = count(build_tables(half_of_everything()))
    assert (full.cells, full.measured, full.reasons) == (664, {"paper's": 664}, {})
    difference = full.difference["paper's"]
    assert difference.alone == pytest.approx(sum(c.alone for c in cells) / 2 / 664)
    assert difference.plus_pnml == pytest.approx(sum(c.plus_pnml for c in cells) / 2 / 664)
    assert difference.published is None
    # Against the paper's 89.9 / 98.4 and 94.6: differences of -0.7 / +0.04 and +0.4.
    some = count(build_tables(SOME)[:1])
    assert str(some) == (
        "2 of 100 cells measured: 2 on the paper's own networks; not run: 97 (no result), "
        "1 (no <iSUN> & no {luck}_100% at all)."
    )
    assert some.differences == [
        "Mean absolute difference to the paper on the paper's own networks: alone 0.55, with pNML 0.04 points."
    ]
    assert count(build_tables([])).differences == []


def test_markdown_has_our_row_above_the_papers() -> None:
    text = render(build_tables(SOME), Format.MARKDOWN)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    first = lines.index(["", "SVHN", "ours", "89.2 / 98.4", "95.0 / –", "not run (1)", "not run (1)"])
    assert lines[first + 1] == ["", "", "paper", "89.9 / 98.4", "94.6 / 98.7", "99.1 / 99.6", "99.6 / 100.0"]
    assert lines[first + 2] == ["", "", "difference", "−0.7 / 0.0", "+0.4 / –", "–", "–"]
    assert ["", "", "difference", "−0.35 / +0.01", "–"] in lines
    assert "- (1) not run: no result\n- (2) not run: no \\<iSUN> & no {luck}_100% at all\n" in text


def widths_in_markdown(text: str) -> list[list[int]]:
    """Return, per table, the number of cells of each line."""
    blocks = [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]
    return [[line.count("|") - 1 for line in block if "---" not in line] for block in blocks]


class Page(HTMLParser):
    """Collects, per table, the width of each row with cells that reach down from rows above counted in."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tables: list[list[int]] = []
        self.reaching: list[int] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag != "meta":
            self.open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.reaching = [left - 1 for left in self.reaching if left > 1]
            self.tables[-1].append(len(self.reaching))
        elif tag in {"td", "th"}:
            self.tables[-1][-1] += 1
            self.reaching.append(int(dict(attrs).get("rowspan") or 1))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.mark.parametrize("results", [[], SOME, half_of_everything(), VARIED])
def test_html_is_well_formed_and_has_the_cells_of_markdown(results: list[Result]) -> None:
    tables = build_tables(results)
    text = render(tables, Format.HTML)
    page = Page()
    page.feed(text)
    page.close()
    assert not page.open
    assert page.tables == widths_in_markdown(render(tables, Format.MARKDOWN))
    for table, widths in zip(tables, page.tables, strict=True):
        assert set(widths) == {3 + len(table.columns)}
    assert not re.search(r"(src|href)=|url\(", text)


@pytest.mark.parametrize("results", [[], SOME, half_of_everything(), VARIED])
def test_latex_is_balanced_and_every_line_has_all_columns(results: list[Result]) -> None:
    tables = build_tables(results)
    text = re.sub(r"(?m)^%.*$", "", render(tables, Format.LATEX))
    opened: list[str] = []
    for kind, name in re.findall(r"\\(begin|end)\{(\w+)\}", text):
        if kind == "begin":
            opened.append(name)
        else:
            assert opened.pop() == name
    assert not opened
    plain = re.sub(r"\\[\\{}&%$#_]", "", text)
    assert plain.count("{") == plain.count("}")
    assert plain.count("$") % 2 == 0
    assert plain.isascii()
    bodies = re.findall(r"\\begin\{longtable\}\{(l+c+)\}\n\\caption.*?\n(.*?)\\end\{longtable\}", text, re.DOTALL)
    lines = [[line.count("&") for line in body.splitlines() if line.endswith(r"\\")] for _, body in bodies]
    assert [[cells + 1 for cells in table] for table in lines] == widths_in_markdown(render(tables, Format.MARKDOWN))
    assert [len(columns) for columns, _ in bodies] == [3 + len(table.columns) for table in tables]


def test_two_results_of_one_cell_are_refused() -> None:
    with pytest.raises(ValueError, match="two results of densenet-bc-100__cifar10__svhn__baseline in paper"):
        build_tables([SOME[0], SOME[0]])


def varied_records() -> dict[tuple[str, ...], dict[str, str]]:
    return {(r["model"], r["ind"], r["ood"], r["method"], r["metric"]): r for r in records(build_tables(VARIED))}


def test_odin_is_that_of_the_oracle_with_ours_and_the_published_arithmetic_beside() -> None:
    found = varied_records()["densenet-bc-100", "cifar10", "svhn", "odin", "auroc"]
    assert [float(found[name]) for name in ("ours", "ours_plus_pnml", "ours_published")] == [90, 91, 92]
    assert [float(found[name]) for name in ("no_oracle", "no_oracle_plus_pnml")] == [80, 81]
    assert float(found["difference_published"]) == pytest.approx(92 - 98.7)
    text = render(build_tables(VARIED), Format.MARKDOWN)
    assert re.search(r"SVHN +\| ours +\| not run \(\d\) +\| 90.0 / 91.0 / 92.0 +\|", text)
    assert re.search(r"ODIN, no oracle \| – +\| 80.0 / 81.0 +\|", text)


def test_networks_trained_anew_stand_in_and_are_marked() -> None:
    found = varied_records()["wideresnet-40-2", "cifar10", "isun", "energy", "auroc"]
    assert (found["network"], found["ours"], found["status"]) == ("retrained", "70.0", "run")
    tables = build_tables(VARIED)
    assert "| 70.0 / 71.0 / 72.0†" in render(tables, Format.MARKDOWN)
    assert '<td class="retrained">70.0 / 71.0 / 72.0†</td>' in render(tables, Format.HTML)
    assert '<td class="own">99.0 / 99.5</td>' in render(tables, Format.HTML)
    assert r"70.0 / 71.0 / 72.0$^\dagger$" in render(tables, Format.LATEX)
    assert count(tables).measured == {"paper's": 6, "retrained": 3}
    nothing = build_from(Sources(VARIED, retrained=""))
    assert count(nothing).measured == {"paper's": 6}


def test_the_re_made_set_that_matches_stands_in_the_papers_column() -> None:
    found = varied_records()["densenet-bc-100", "cifar10", "tinyimagenet_resize", "gram", "auroc"]
    assert (found["ours"], found["ours_plus_pnml"]) == ("99.0", "99.5")
    text = render(build_tables(VARIED), Format.MARKDOWN)
    assert "TinyImageNet (R)‡" in text
    assert "made anew, 32×32" in text
    antialiased = [result for result in VARIED if result.ood != "tinyimagenet_resize_nearest"]
    reasons = count(build_tables(antialiased)).reasons
    assert any(reason.startswith("TinyImageNet (R) of 2017 cannot be had") for reason in reasons)
    published = [replace(result, settings={}) for result in antialiased]  # the archive itself
    assert count(build_tables(published)).measured["paper's"] == 6
