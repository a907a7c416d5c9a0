from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from pnml.bench.methods import ALL_METHODS, GROUPS
from pnml.bench.store import load_study
from pnml.cli import app

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
    assert "2 cells: 2 run" in again.stdout
    assert "regret" not in again.stdout  # nothing was computed


def test_a_pair_that_the_paper_lacks_has_a_dash(small_world: Path) -> None:
    done = call(f"--ind cifar10 --ood cifar100 --method energy --out {small_world} --limit 12")
    assert done.exit_code == 0, done.output
    assert "CIFAR-100" in done.stdout
    assert "–" in done.stdout


def test_paper_reports_absent_sets_and_checkpoints(
    small_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PNML_DATA", str(tmp_path))
    done = call(f"--paper --out {small_world}")
    assert done.exit_code == 1, done.output
    assert "nothing was measured, none of 232 cells could be run" in done.stderr
    assert "ResNet-101, ImageNet-30 against iSUN, LSUN (R)" in done.stdout
    assert "image set absent: imagenet30" in done.stdout
    assert "232 cells: 0 run, 232 not run." in done.stdout
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


def test_help_has_an_example() -> None:
    done = call("--help")
    assert done.exit_code == 0
    assert "pnml bench --model densenet-bc-100 --ind cifar10" in done.stdout


def test_help_names_every_method() -> None:
    _, _, listed = call("--help").stdout.partition("The methods with commas between.")
    assert {*ALL_METHODS, *GROUPS} <= set(re.findall(r"[a-z][a-z-]+", listed.partition("[default: baseline]")[0]))
