"""Run the figure commands, those of scores on the files of a run of small random networks."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from pnml_bench.cli.figures import figures_app
from pnml_bench.figures._comparison import kept_comparison
from pnml_bench.options import Options
from pnml_bench.protocol import plan
from pnml_bench.runner import run

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


def call(line: str) -> Result:
    return CliRunner().invoke(figures_app, line.split())


@pytest.fixture
def kept(small_world: Path) -> dict[str, Path]:
    """Return the files of scores of a run, by OOD set and method."""
    cells = plan("densenet-bc-100", "cifar10", ["svhn", "uniform"], ["baseline", "gram"])
    run(cells, Options(out=small_world / "results", keep_scores=True, device="cpu"))
    files = small_world.rglob("*.safetensors")
    return {path.stem.removeprefix("densenet-bc-100__cifar10__"): path for path in files}


def test_commands_draw_the_files_of_a_run(kept: dict[str, Path], tmp_path: Path) -> None:
    figures = {
        "histograms": ("svhn__baseline", "uniform__baseline"),
        "tpr-tnr": ("svhn__gram", "uniform__gram"),
        "gram-vs-pnml": ("svhn__gram",),
        "spectrum": ("uniform__gram",),
    }
    for name, cells in figures.items():
        out = tmp_path / name
        done = call(f"{name} {' '.join(f'--scores {kept[cell]}' for cell in cells)} --out {out}")
        assert done.exit_code == 0, done.output
        written = {path.name for path in out.iterdir()}
        assert {f"{name}.png", f"{name}.svg"} <= written
        assert written == {word.rsplit("/", 1)[1] for word in done.stdout.split() if word.startswith(str(out))}
    too_many = call(f"gram-vs-pnml --scores {kept['svhn__gram']} --scores {kept['uniform__gram']} --out {tmp_path}")
    assert (too_many.exit_code, "one pair, got 2 files" in too_many.stderr) == (2, True)


def test_gram_vs_pnml_writes_and_prints_the_counts(kept: dict[str, Path], tmp_path: Path) -> None:
    done = call(f"gram-vs-pnml --scores {kept['svhn__gram']} --out {tmp_path}")
    found = json.loads((tmp_path / "gram-vs-pnml.json").read_text(encoding="utf-8"))
    about = {"model": "densenet-bc-100", "ind": "cifar10", "ood": "svhn", "method": "gram"}
    assert {key: found[key] for key in about} == about
    assert found["samples"] == {"ind": 11, "ood": 12}  # a tenth of the 12 test images is held out
    comparison = kept_comparison(kept["svhn__gram"])
    at, at_pnml = found["thresholds"]["alone"], found["thresholds"]["plus_pnml"]
    gram, regret = comparison.alone, comparison.plus_pnml
    assert found["ind_refused"] == {"alone": np.sum(gram.ind > at), "plus_pnml": np.sum(regret.ind > at_pnml)}
    assert f"Of 12 OOD samples, Gram+pNML flags {found['ood_caught_only_by']['plus_pnml']} that Gram" in done.stdout


def test_files_that_are_no_scores_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    path.write_bytes(b"")
    done = call(f"histograms --scores {path} --out {tmp_path / 'new'}")
    assert done.exit_code == 1
    assert "MODEL__IND__OOD__METHOD.safetensors" in done.stderr


@pytest.mark.parametrize("command", ["spectrum", "gram-vs-pnml", "tpr-tnr", "histograms"])
def test_help_shows_an_example(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    done = CliRunner().invoke(figures_app, [command, "--help"])
    assert done.exit_code == 0
    assert f"pnml figures {command} --" in done.output


@pytest.mark.parametrize("command", ["iris", "simulation"])
def test_without_matplotlib_one_line_says_how_to_install_it(
    command: str, small_world: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = CliRunner().invoke(figures_app, [*command.split(), "--out", str(small_world)])
    assert done.exit_code == 1
    expected = "error: pnml figures needs 'matplotlib', which is not installed: pip install 'pnml[plot]'\n"
    assert done.stderr == expected
    assert not small_world.exists()


def test_json_lists_the_files(small_world: Path) -> None:
    done = CliRunner().invoke(figures_app, ["simulation", "--out", str(small_world), "--json"])
    expected = [str(small_world / f"simulation.{suffix}") for suffix in ("png", "svg")]
    assert json.loads(done.stdout) == {"figures": expected, "warnings": []}
