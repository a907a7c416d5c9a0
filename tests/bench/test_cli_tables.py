"""The command ``tables``, run as a user runs it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from rich.console import Console
from typer.testing import CliRunner

from pnml.cli import app
from pnml.metrics import evaluate
from pnml_bench.cli import tables as command
from pnml_bench.render import Format, render
from pnml_bench.results import Result, Scores
from pnml_bench.store import ResultStore, load_study
from pnml_bench.tables import Sources, build_tables

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "results"
    scores = Scores(evaluate([1, 2, 4], [3, 5]), evaluate([1, 2, 3], [4, 5]))
    result = Result(model="densenet-bc-100", ind="cifar10", ood="svhn", method="gram", scores=scores)
    ResultStore(folder).append(result)
    return folder


def test_prints_markdown_into_a_pipe(results: Path) -> None:
    found = CliRunner().invoke(app, ["tables", "--results", str(results)])
    assert found.exit_code == 0
    assert found.stdout == render(build_tables(Sources(load_study(results))), Format.MARKDOWN)


def test_draws_tables_in_a_terminal(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "Console", lambda: Console(force_terminal=True, width=160))
    found = CliRunner().invoke(app, ["tables", "--results", str(results), "--table", "densenet-auroc"])
    assert found.exit_code == 0
    assert "83.3 / 100.0" in found.stdout
    assert "(1) not run: no result" in found.stdout
    assert "1 of 100 cells measured: 1 on the paper's own networks" in found.stdout


def test_writes_all_formats(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "a" / "b"
    found = CliRunner().invoke(app, ["tables", "--results", str(results), "--out", str(out)])
    assert found.exit_code == 0
    assert {path.name for path in out.iterdir()} == {"tables.md", "tables.tex", "tables.csv", "tables.html"}
    assert (out / "tables.csv").read_text().count("\n") == 665
    assert "3 of 664 cells measured" in found.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--results", "nowhere"], 1, "no results in 'nowhere'"),
        (["--study", "peers"], 1, "no results of the study 'peers': choose one of paper"),
        (["--table", "densenet"], 2, "no table 'densenet'"),
    ],
)
def test_mistakes_are_explained(results: Path, arguments: list[str], code: int, message: str) -> None:
    found = CliRunner().invoke(app, ["tables", "--results", str(results), *arguments])
    assert found.exit_code == code
    assert message in found.stderr


def test_a_study_is_shown_with_its_variants_and_with_networks_trained_anew(results: Path) -> None:
    (result,) = load_study(results)
    store = ResultStore(results)
    store.append(replace(result, study="paper-published", method="baseline", scores=None, reason="not mine"))
    store.append(replace(result, study="mine", ood="isun"))
    store.append(replace(result, study="retrained", model="resnet-34"))
    words = ["tables", "--results", str(results), "--format", "csv"]
    shown = {name: CliRunner().invoke(app, [*words, "--study", name]).stdout for name in ("paper", "mine")}
    assert [text.count(",run,") for text in shown.values()] == [6, 6]
    assert [text.count("retrained") for text in shown.values()] == [3, 3]
    assert CliRunner().invoke(app, [*words, "--retrained", "mine"]).stdout.count("retrained") == 3
    assert CliRunner().invoke(app, [*words, "--study", "retrained"]).stdout.count("paper's") == 3


def test_json_has_the_cells_of_the_tables(results: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    words = ["tables", "--results", str(results), "--table", "densenet-auroc", "--out", str(out), "--format", "csv"]
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert (found["study"], found["out"]) == ("paper", [str(out / "tables.csv")])
    assert list(found["tables"]) == ["densenet-auroc"]
    (run,) = (cell for cell in found["tables"]["densenet-auroc"] if cell["reason"] is None)
    assert (run["model"], run["ind"], run["ood"], run["method"]) == ("densenet-bc-100", "cifar10", "svhn", "gram")
    measured = evaluate([1, 2, 4], [3, 5]).auroc, evaluate([1, 2, 3], [4, 5]).auroc
    assert run["ours"] == dict(zip(("alone", "plus_pnml", "published"), (*measured, None), strict=True))
    assert run["network"] == "paper's"
    assert found["counts"]["measured"] == {"paper's": 1}
