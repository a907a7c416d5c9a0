"""The tables: every cell once, the differences right, and every format well formed."""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from html.parser import HTMLParser

import pytest

from pnml.bench.paper import paper_cells
from pnml.bench.render import Format, render
from pnml.bench.results import Result, Scores
from pnml.bench.tables import TABLE_NAMES, Table, build_tables, summarise
from pnml.metrics import Metrics


def run(key: tuple[str, str, str, str], alone: dict[str, float], plus: dict[str, float] | None) -> Result:
    """Return a result with the given metrics and 50 for all others."""
    names = ("auroc", "tnr_at_tpr95", "detection_accuracy", "aupr_in", "aupr_out", "fpr_at_tpr95_ood")

    def fill(some: dict[str, float]) -> Metrics:
        return Metrics(**{name: some.get(name, 50.0) for name in names})

    model, ind, ood, method = key
    scores = Scores(fill(alone), None if plus is None else fill(plus))
    return Result(model=model, ind=ind, ood=ood, method=method, scores=scores)


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


def test_summary_counts_and_averages() -> None:
    cells = paper_cells()
    full = summarise(build_tables(half_of_everything()))
    assert (full.run, full.not_run) == (664, 0)
    assert full.difference.alone == pytest.approx(sum(c.alone for c in cells) / 2 / 664)
    assert full.difference.plus_pnml == pytest.approx(sum(c.plus_pnml for c in cells) / 2 / 664)
    # Against the paper's 89.9 / 98.4 and 94.6: differences of -0.7 / +0.04 and +0.4.
    assert str(summarise(build_tables(SOME)[:1])) == (
        "100 cells: 2 run, 98 not run; mean absolute difference to the paper 0.55 points, with pNML 0.04."
    )
    alone = summarise(build_tables(SOME[1:2])[:1])
    assert str(alone) == "100 cells: 1 run, 99 not run; mean absolute difference to the paper 0.40 points."


def test_markdown_has_our_row_above_the_papers() -> None:
    text = render(build_tables(SOME), Format.MARKDOWN)
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line[:1] == "|"]
    first = lines.index(["", "SVHN", "ours", "89.2 / 98.4", "95.0 / –", "not run (1)", "not run (1)"])
    assert lines[first + 1] == ["", "", "paper", "89.9 / 98.4", "94.6 / 98.7", "99.1 / 99.6", "99.6 / 100.0"]
    assert lines[first + 2] == ["", "", "difference", "−0.7 / 0.0", "+0.4 / –", "–", "–"]
    assert ["", "", "difference", "−0.35 / +0.01", "–"] in lines
    assert "1. not run: no result\n2. not run: no \\<iSUN> & no {luck}_100% at all\n" in text


def test_markdown_of_a_whole_run_has_no_notes() -> None:
    assert "not run" not in render(build_tables(half_of_everything())[:1], Format.MARKDOWN).partition("\n")[2]


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


@pytest.mark.parametrize("results", [[], SOME, half_of_everything()])
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


def test_html_shows_reasons_as_text() -> None:
    page = Page()
    page.feed(render(build_tables(SOME), Format.HTML))
    assert "not run: no <iSUN> & no {luck}_100% at all" in page.text
    assert str(summarise(build_tables(SOME))) in page.text


@pytest.mark.parametrize("results", [[], SOME, half_of_everything()])
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


def test_latex_escapes_reasons() -> None:
    assert r"\item not run: no <iSUN> \& no \{luck\}\_100\% at all" in render(build_tables(SOME), Format.LATEX)


def test_tables_are_the_papers_eight() -> None:
    tables = build_tables([])
    assert [table.name for table in tables] == list(TABLE_NAMES)
    assert [(len(table.rows), len(table.columns)) for table in tables] == [
        (25, 4), (25, 4), (16, 3), (8, 2), (25, 4), (25, 4), (25, 4), (25, 4)
    ]  # fmt: skip
    assert tables[2].columns == ("AUROC", "TNR at TPR 95%", "Detection accuracy")
    assert tables[3].columns == ("ResNet-18", "ResNet-101")
    assert "Energy alone / with pNML" in tables[2].caption


def test_build_tables_raises_for_two_results_of_one_cell() -> None:
    with pytest.raises(ValueError, match="two results of densenet-bc-100__cifar10__svhn__baseline"):
        build_tables([SOME[0], SOME[0]])
