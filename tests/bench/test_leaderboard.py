from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Any

from typer.testing import CliRunner

from pnml.cli import app
from pnml.metrics import Metrics
from pnml_bench.leaderboard import Board, leaderboard, render_leaderboard
from pnml_bench.methods import GROUPS
from pnml_bench.options import Options
from pnml_bench.protocol import plan
from pnml_bench.results import Result, Run, Scores
from pnml_bench.runner import run
from pnml_bench.store import ResultStore, load_study

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

DENSENET = "densenet-bc-100"


def result(method: str, ood: str, auroc: float | None, **about: Any) -> Result:
    """Return a result with one AUROC, or without scores."""
    scores = None if auroc is None else Scores(Metrics(auroc, 0.0, 50.0, 0.0, 0.0, 0.0))
    given = {"model": DENSENET, "ind": "cifar10", "reason": None if scores else "it failed", **about}
    return Result(method=method, ood=ood, scores=scores, **given)


def board(*results: Result) -> Board:
    (found,) = leaderboard(results)
    return found


def test_means_over_near_and_far_sets() -> None:
    aurocs = {"cifar100": 60.0, "svhn": 80.0, "uniform": 100.0}
    found = board(
        *(result("knn", ood, auroc) for ood, auroc in aurocs.items()),
        *(result("vim", ood, 99.0) for ood in aurocs),
    )
    assert (found.near, found.far) == (("cifar100",), ("svhn", "uniform"))
    assert [(s.method, s.near, s.far, s.overall) for s in found.standings] == [
        ("vim", 99.0, 99.0, 99.0),
        ("knn", 60.0, 90.0, 80.0),
    ]
    assert "Near: CIFAR-100. Far: SVHN, Uniform." in found.caption
    assert found.notes == ()


def test_a_method_without_all_sets_has_no_mean() -> None:
    found = board(
        result("knn", "cifar100", 60.0),
        result("knn", "svhn", 80.0),
        result("knn", "isun", None),  # no method has it, so nobody is measured by it
        result("vim", "cifar100", 70.0),
        result("vim", "svhn", None),
        result("she", "cifar100", None),
        result("she", "svhn", None),
        result("gen", "svhn", 90.0),
    )
    assert found.far == ("svhn",)
    means = {s.method: (s.near, s.far, s.overall) for s in found.standings}
    assert means == {
        "knn": (60.0, 80.0, 70.0),
        "vim": (70.0, None, None),
        "she": (None, None, None),
        "gen": (None, 90.0, None),
    }
    assert found.standings[0].method == "knn"
    assert found.notes == (
        "vim, SVHN: it failed",
        "she, CIFAR-100, SVHN: it failed",
        "gen, CIFAR-100: no result",
    )


def test_seconds_and_memory_are_those_of_the_method_alone() -> None:
    seconds = {"train_embedding": 100.0, "method_fit": 2.0, "metrics": 50.0, "score": 1.0}
    gpu, cpu = Run(device="cuda: H200"), Run(device="cpu: Xeon")
    small, large = ({"memory_bytes": mib * 2**20, "memory_device": "cpu"} for mib in (3, 7))
    found = board(
        result("knn", "svhn", 80.0, seconds=seconds, **small, run=gpu),
        result("knn", "isun", 80.0, seconds={**seconds, "score": 3.0}, **large, run=gpu),
        result("vim", "svhn", 70.0, seconds=seconds, **small, run=cpu),
        result("gen", "svhn", 60.0, memory_device="cpu", run=cpu),
        result("she", "svhn", None),
    )
    texts = {standing.method: standing.texts[5:] for standing in found.standings}
    assert texts == {
        "knn": ("4.000", "7.0 MiB (cpu)"),
        "vim": ("3.000", "3.0 MiB"),
        "gen": ("0.000", "–"),
        "she": ("–", "–"),
    }


def test_methods_that_need_no_ood_data_come_first() -> None:
    aurocs = {"dice": 99.0, "gen": 70.0, "ash": 98.0, "she": None, "knn": 80.0, "mine": 60.0}
    found = board(*(result(method, "svhn", auroc) for method, auroc in aurocs.items()))
    assert [(standing.method, standing.texts[1]) for standing in found.standings] == [
        ("knn", "yes"),
        ("gen", "yes"),
        ("mine", "yes"),
        ("she", "yes"),
        ("dice", "no"),
        ("ash", "no"),
    ]


def call(line: str) -> Any:
    return CliRunner().invoke(app, line.split())


def test_the_command_prints_or_writes_markdown(tmp_path: Path) -> None:
    for method in ("knn", "vim"):
        ResultStore(tmp_path / "results").append(result(method, "svhn", 80.0))
    printed = call(f"leaderboard --results {tmp_path / 'results'}")
    assert printed.stdout == render_leaderboard(leaderboard(load_study(tmp_path / "results")))
    wrote = call(f"leaderboard --results {tmp_path / 'results'} --out {tmp_path / 'docs' / 'board.md'}")
    assert wrote.exit_code == 0
    assert (tmp_path / "docs" / "board.md").read_text(encoding="utf-8") == printed.stdout
    assert call(f"leaderboard --results {tmp_path / 'results'} --out {tmp_path / 'board.tex'}").exit_code == 0
    assert r"knn & yes & -- & 80.0 & 80.0 & 0.000 & -- \\" in (tmp_path / "board.tex").read_text(encoding="utf-8")
    assert call(f"leaderboard --results {tmp_path / 'nowhere'}").exit_code == 1
    found = json.loads(call(f"leaderboard --results {tmp_path / 'results'} --json").stdout)
    assert (found["study"], found["out"]) == ("paper", None)
    (board,) = found["boards"]
    assert {standing["method"]: standing["overall"] for standing in board["standings"]} == {"knn": 80.0, "vim": 80.0}


def test_peers_are_run_and_failures_have_a_reason(small_world: Path) -> None:
    done = run(plan(DENSENET, "cifar10", ["cifar100", "svhn"], ["peers"]), Options(out=small_world))
    found = {(one.method, one.ood): one for one in done.results}
    assert {method for method, _ in found} == set(GROUPS["peers"])
    failed = {one.method: str(one.reason) for one in done.results if one.scores is None}
    assert set(failed) == {"she"}  # random weights get some class always wrong
    assert "she failed when fitting on 60 samples" in failed["she"]
    for method in set(GROUPS["peers"]) - {"she", "baseline", "energy"}:
        peer = found[method, "svhn"]
        assert peer.scores is not None
        assert peer.scores.plus_pnml is None
        assert peer.seconds["method_fit"] > 0
        assert peer.seconds["score"] > 0
        assert "regret" not in peer.seconds
        assert peer.memory_device == "cpu"
    paper, baseline = found["pnml-paper", "svhn"].scores, found["baseline", "svhn"].scores
    assert paper is not None
    assert baseline is not None
    assert paper.method == baseline.plus_pnml
    (made,) = leaderboard(load_study(small_world))
    assert len(made.standings) == len(GROUPS["peers"])
    assert made.near == ("cifar100",)


def test_peers_without_pytorch_ood_name_the_install_command(small_world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pytorch_ood", None)
    done = call(f"bench --ood svhn --method peers --results {small_world}")
    assert done.exit_code == 1
    assert "pip install 'pnml[peers]'" in done.stderr
