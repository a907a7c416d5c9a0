from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors import safe_open
from sklearn.metrics import roc_auc_score
from typer.testing import CliRunner

from pnml.cli import app
from pnml.demo import assets
from pnml_bench import zoo
from pnml_bench.data import load
from pnml_bench.methods import ALL_METHODS, GROUPS
from pnml_bench.store import load_study

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


@pytest.fixture(autouse=True)
def wide_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")


def call(line: str) -> Result:
    return CliRunner().invoke(app, ["bench", *line.split()])


def test_prints_our_numbers_beside_the_papers(small_world: Path) -> None:
    out = f"--out {small_world} --limit 12 --device cpu"
    done = call(f"--model densenet-bc-100 --ind cifar10 --ood uniform,gaussian --method baseline {out}")
    assert done.exit_code == 0, done.output
    assert "DenseNet-BC-100, CIFAR-10" in done.stdout
    assert "96.6 / 100.0" in done.stdout  # the paper's, Uniform
    assert "97.6 / 100.0" in done.stdout  # the paper's, Gaussian
    first = load_study(small_world, "paper-limit-12")[0].scores
    assert first is not None
    assert first.plus_pnml is not None
    assert f"{first.method.auroc:.1f} / {first.plus_pnml.auroc:.1f}" in done.stdout
    assert "note: Uniform: limited to 12 images" in done.stdout
    assert "2 cells: 2 run, 0 not run." in done.stdout
    assert "cells.csv, study paper-limit-12." in done.stdout
    assert "regret" in done.stdout
    again = call(f"--ood uniform,gaussian {out}")
    assert again.exit_code == 0
    assert "2 cells: 0 run, 2 finished before (--force runs them again), 0 not run." in again.stdout
    more = json.loads(call(f"--ood uniform,gaussian --method baseline,gen {out} --json").stdout)
    assert (more["run"], more["finished_before"], more["not_run"]) == (2, 2, 0)
    assert "regret" not in again.stdout  # nothing was computed


def test_paper_reports_absent_sets_and_checkpoints(
    small_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PNML_DATA", str(tmp_path))
    done = call(f"--paper --out {small_world}")
    assert done.exit_code == 1, done.output
    assert "nothing was measured: " in done.stderr
    assert "ResNet-101, ImageNet-30 against iSUN, LSUN (R)" in done.stderr
    assert "image set absent: imagenet30" in done.stderr
    assert "258 cells: 0 run, 258 not run." in done.stdout
    assert {result.status for result in load_study(small_world)} == {"not run"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--method nearest", "no method is named 'nearest'"),
        ("--ood nowhere", "no OOD set is named 'nowhere'"),
        ("--limit 0", "limit is 0"),
        ("--device abacus", "abacus"),
    ],
)
def test_mistakes_are_explained(line: str, message: str) -> None:
    done = call(line)
    assert done.exit_code == 1
    assert message in done.stderr


def test_help_names_every_method() -> None:
    _, _, listed = call("--help").stdout.partition("The methods with commas between.")
    assert {*ALL_METHODS, *GROUPS} <= set(re.findall(r"[a-z][a-z-]+", listed.partition("[default: baseline]")[0]))


def test_nothing_measured_is_an_error_with_the_reason(small_world: Path) -> None:
    line = f"--model resnet-34 --ood uniform,gaussian --out {small_world} --limit 12 --device cpu"
    done = call(line)
    assert done.exit_code == 1
    assert "error: nothing was measured: ResNet-34, CIFAR-10 against Uniform, Gaussian with Baseline: " in done.stderr
    assert "no resnet-34_cifar10 is published" in done.stderr
    assert "pnml train trains a network, and --weights takes its file" in done.stderr
    found = json.loads(call(f"{line} --json").stdout)
    assert found["error"].startswith("nothing was measured")
    assert (found["run"], found["not_run"]) == (0, 2)
    assert {cell["scores"] for cell in found["cells"]} == {None}


def test_json_has_the_numbers_of_the_store(small_world: Path) -> None:
    done = call(f"--ood uniform,svhn --method baseline,gen --out {small_world} --limit 12 --device cpu --json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["run"], found["not_run"], found["study"]) == (4, 0, "paper-limit-12")
    stored = {result.key: result.scores for result in load_study(small_world, "paper-limit-12")}
    for cell in found["cells"]:
        scores = stored[cell["model"], cell["ind"], cell["ood"], cell["method"]]
        assert scores is not None
        assert cell["scores"] == asdict(scores.method)
        assert cell["scores_with_pnml"] == (None if scores.plus_pnml is None else asdict(scores.plus_pnml))


def test_resnet_20_is_the_network_of_the_demo(made_images: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("PNML_DATA", str(made_images))
    monkeypatch.setenv("PNML_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PNML_WEIGHTS", raising=False)
    monkeypatch.chdir(tmp_path)
    done = call("--model resnet-20 --ood svhn --method baseline,energy --limit 12 --device cpu --json")
    assert done.exit_code == 0, done.output
    (expected,) = (cell for cell in json.loads(done.stdout)["cells"] if cell["method"] == "baseline")
    path = assets.verified_path(assets.WEIGHTS)
    with safe_open(path, framework="pt") as file:
        state, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    network = zoo.create("resnet-20", 10).eval()
    network.load_state_dict(state)
    mean, std = (torch.tensor(json.loads(about[name])).view(3, 1, 1) for name in ("mean", "std"))
    scores = []
    for name in ("cifar10", "svhn"):
        pixels = torch.from_numpy(np.array(load(name, limit=12).images)).permute(0, 3, 1, 2)
        with torch.no_grad():
            scores.append(1 - network((pixels / 255 - mean) / std).double().softmax(dim=1).amax(dim=1).numpy())
    truth = np.repeat([0, 1], [len(one) for one in scores])
    assert expected["scores"]["auroc"] == pytest.approx(100 * roc_auc_score(truth, np.concatenate(scores)), abs=1e-6)
    board = CliRunner().invoke(app, ["leaderboard", "--results", "results"])
    assert board.exit_code == 0
    assert "### ResNet-20, CIFAR-10\n" in board.stdout


@pytest.mark.parametrize("command", ["leaderboard --results {}"])
def test_results_of_limited_runs_are_found(command: str, small_world: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(small_world.parent)
    said = call(f"--ood uniform --method baseline,energy --out {small_world} --limit 12 --device cpu").stdout
    assert f"pnml report {small_world} --study paper-limit-12" in said
    words = command.format(small_world).split()
    alone = CliRunner().invoke(app, words)
    assert alone.exit_code == 0, alone.output
    assert "shown is" not in alone.stderr
    call(f"--ood gaussian --method baseline,energy --out {small_world} --device cpu")
    both = CliRunner().invoke(app, words)
    assert both.exit_code == 0, both.output
    assert "shown is the study paper; --study chooses another: paper-limit-12" in both.stderr
    chosen = CliRunner().invoke(app, [*words, "--study", "paper-limit-12"])
    assert "shown is" not in chosen.stderr


def test_ctrl_c_names_where_finished_cells_are(small_world: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pnml_bench.runner.run", interrupt)
    done = call(f"--ood uniform --out {small_world} --device cpu")
    assert done.exit_code == 130
    assert done.stderr == (
        f"interrupted: finished cells are kept in {small_world / 'cells.csv'}; run the same command again to continue\n"
    )
