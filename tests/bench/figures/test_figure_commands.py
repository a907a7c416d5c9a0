"""Run the figure commands, those of scores on the files of a run of small random networks."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from pnml_bench.cli.figures import figures_app
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


def test_files_that_are_no_scores_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    path.write_bytes(b"")
    done = call(f"histograms --scores {path} --out {tmp_path / 'new'}")
    assert done.exit_code == 1
    assert "MODEL__IND__OOD__METHOD.safetensors" in done.stderr


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
