"""Run the figure commands that need networks, on synthetic images and small random networks."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from typer.testing import CliRunner

from pnml.metrics import evaluate
from pnml_bench.cli.figures import figures_app
from pnml_bench.figures._runs import comparisons
from pnml_bench.options import Options
from pnml_bench.protocol import plan
from pnml_bench.runner import run

if TYPE_CHECKING:
    from pathlib import Path

    from typer.testing import Result


def call(line: str) -> Result:
    return CliRunner().invoke(figures_app, [*line.split(), "--device", "cpu"])


@pytest.mark.parametrize(
    "line",
    [
        "spectrum --ind cifar10,svhn",
        "gram-vs-pnml --ind cifar10 --ood tinyimagenet_crop",
        "tpr-tnr --ind cifar10 --ood svhn,uniform --method energy --limit 12",
        "histograms --ind cifar10 --ood svhn,uniform --limit 12",
    ],
)
def test_command_writes_its_files(line: str, small_world: Path) -> None:
    name = line.split(maxsplit=1)[0]
    done = call(f"{line} --out {small_world}")
    assert done.exit_code == 0, done.output
    written = {path.name for path in small_world.iterdir()}
    assert {f"{name}.png", f"{name}.svg"} <= written
    assert written == {word.rsplit("/", 1)[1] for word in done.stdout.split() if word.startswith(str(small_world))}
    assert (small_world / f"{name}.png").read_bytes().startswith(b"\x89PNG\r\n\x1a\n")


def test_gram_vs_pnml_writes_and_prints_the_counts(small_world: Path) -> None:
    done = call(f"gram-vs-pnml --ind cifar10 --ood svhn --out {small_world}")
    assert done.exit_code == 0, done.output
    found = json.loads((small_world / "gram-vs-pnml.json").read_text(encoding="utf-8"))
    about = {"model": "densenet-bc-100", "ind": "cifar10", "ood": "svhn", "method": "gram", "limit": None}
    assert {key: found[key] for key in about} == about
    (comparison,) = comparisons("densenet-bc-100", "cifar10", ["svhn"], "gram", Options(device="cpu"))
    assert found["samples"] == {"ind": 11, "ood": 12}  # a tenth of the 12 test images is held out
    at, at_pnml = found["thresholds"]["alone"], found["thresholds"]["plus_pnml"]
    gram, regret = comparison.alone, comparison.plus_pnml
    assert found["ind_refused"] == {"alone": np.sum(gram.ind > at), "plus_pnml": np.sum(regret.ind > at_pnml)}
    assert found["ood_caught_only_by"] == {
        "alone": np.sum((gram.ood > at) & (regret.ood <= at_pnml)),
        "plus_pnml": np.sum((gram.ood <= at) & (regret.ood > at_pnml)),
    }
    assert f"Of 12 OOD samples, Gram+pNML flags {found['ood_caught_only_by']['plus_pnml']} that Gram" in done.stdout


@pytest.mark.parametrize("method", ["baseline", "odin"])
def test_scores_are_those_of_the_benchmark(method: str, small_world: Path) -> None:
    options = Options(out=small_world, device="cpu")
    (result,) = run(plan("densenet-bc-100", "cifar10", ["svhn"], [method]), options).results
    (comparison,) = comparisons("densenet-bc-100", "cifar10", ["svhn"], method, options)
    assert result.scores is not None
    assert evaluate(*comparison.alone) == result.scores.method
    assert evaluate(*comparison.plus_pnml) == result.scores.plus_pnml


def test_kept_scores_give_the_same_pictures_without_a_network(
    small_world: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All four figures, of the files of one run."""
    cells = plan("densenet-bc-100", "cifar10", ["svhn", "uniform"], ["baseline", "gram"])
    run(cells, Options(out=small_world, keep_scores=True))
    files = {path.stem.removeprefix("densenet-bc-100__cifar10__"): path for path in small_world.rglob("*.safetensors")}
    assert set(files) == {"svhn__baseline", "svhn__gram", "uniform__baseline", "uniform__gram"}
    lines = {
        "histograms --ind cifar10 --ood svhn,uniform": ("svhn__baseline", "uniform__baseline"),
        "tpr-tnr --ind cifar10 --ood svhn,uniform --method gram": ("svhn__gram", "uniform__gram"),
        "gram-vs-pnml --ind cifar10 --ood svhn": ("svhn__gram",),
        "spectrum --ind cifar10": ("uniform__gram",),
    }
    for line in lines:
        assert call(f"{line} --out {tmp_path / 'run'}").exit_code == 0
    monkeypatch.setattr("pnml_bench.figures._runs.comparisons", None)  # no network is run
    for line, names in lines.items():
        words = " ".join(f"--scores {files[name]}" for name in names)
        done = call(f"{line.split()[0]} {words} --out {tmp_path / 'kept'}")
        assert done.exit_code == 0, done.output
    for path in (tmp_path / "run").glob("*.png"):
        assert (tmp_path / "kept" / path.name).read_bytes() == path.read_bytes(), path.name
    too_many = call(f"gram-vs-pnml --scores {files['svhn__gram']} --scores {files['uniform__gram']} --out {tmp_path}")
    assert (too_many.exit_code, "one pair, got 2 files" in too_many.stderr) == (2, True)


def test_files_that_are_no_scores_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "mine.safetensors"
    path.write_bytes(b"")
    done = call(f"histograms --scores {path} --out {tmp_path / 'new'}")
    assert done.exit_code == 1
    assert "MODEL__IND__OOD__METHOD.safetensors" in done.stderr


def test_checkpoint_option_is_used(small_world: Path, made_weights: dict[str, Path]) -> None:
    options = Options(device="cpu", limit=12, checkpoint=made_weights["densenet-bc-100_svhn"])
    (own,) = comparisons("densenet-bc-100", "cifar10", ["uniform"], "baseline", options)
    (published,) = comparisons("densenet-bc-100", "cifar10", ["uniform"], "baseline", Options(device="cpu", limit=12))
    assert not np.allclose(own.alone.ood, published.alone.ood)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("spectrum --ind cifar10,cifar7", "no in-distribution set is named 'cifar7'"),
        ("gram-vs-pnml --ood nowhere", "no OOD set is named 'nowhere'"),
        ("tpr-tnr --method magic", "no method is named 'magic'"),
        ("histograms --limit 0", "limit is 0"),
    ],
)
def test_wrong_option_values_print_one_line(line: str, message: str, small_world: Path) -> None:
    done = call(f"{line} --out {small_world}")
    assert done.exit_code == 1
    assert message in done.stderr
    assert "Traceback" not in done.output
    assert not small_world.exists()


@pytest.mark.parametrize("command", ["spectrum", "gram-vs-pnml", "tpr-tnr", "histograms"])
def test_help_shows_an_example(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    done = CliRunner().invoke(figures_app, [command, "--help"])
    assert done.exit_code == 0
    assert f"pnml figures {command} --" in done.output


@pytest.mark.parametrize("command", ["iris", "simulation", "histograms --ind cifar10 --ood svhn"])
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
