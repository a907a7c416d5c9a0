"""Reports of benchmark results, with and without the scores that a run kept."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
import typer
from typer.testing import CliRunner, Result

from pnml.bench import zoo
from pnml.bench.data import load
from pnml.bench.options import Options
from pnml.bench.protocol import plan
from pnml.bench.report import choose_results, report_of
from pnml.bench.results import Result as Cell
from pnml.bench.results import Scores, load_results, save_result
from pnml.bench.runner import run
from pnml.bench.saved_scores import load_scores, save_scores
from pnml.cli.report import report
from pnml.metrics import evaluate

if TYPE_CHECKING:
    from pathlib import Path

DENSENET = "densenet-bc-100"
app = typer.Typer()
app.command()(report)


def keep(out: Path, ood: str, method: str = "baseline", **how: object) -> Path:
    options = Options(out=out, keep_scores=True, **how)  # type: ignore[arg-type]
    run(plan(DENSENET, "cifar10", ood.split(","), method.split(",")), options)
    return options.folder


def call(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


def test_evidence_is_what_the_network_says(small_world: Path) -> None:
    folder = keep(small_world, "svhn")
    evidence = load_scores(folder / f"{DENSENET}__cifar10__svhn__baseline.safetensors")
    network = zoo.load("densenet-bc-100_cifar10")
    for one, images in ((evidence.ind, load("cifar10")), (evidence.ood, load("svhn"))):
        with torch.no_grad():
            pixels = torch.from_numpy(np.array(images.images)).permute(0, 3, 1, 2)
            probabilities = network(network.normalise(pixels)).double().softmax(dim=1).numpy()
        assert one.probability is not None
        assert one.baseline is not None
        assert one.prediction is not None
        np.testing.assert_array_equal(one.prediction, probabilities.argmax(axis=1))
        np.testing.assert_allclose(one.probability, probabilities.max(axis=1), atol=1e-6)
        np.testing.assert_allclose(one.baseline, 1 - probabilities.max(axis=1), atol=1e-6)
        assert isinstance(one.images, dict)
        for row, image in one.images.items():
            np.testing.assert_array_equal(image, images.images[row])
    np.testing.assert_array_equal(evidence.ind.labels, load("cifar10").labels)
    assert evidence.ood.labels is None
    (result,) = load_results(folder)
    assert result.scores == Scores(
        evaluate(evidence.ind.baseline, evidence.ood.baseline), evaluate(evidence.ind.regret, evidence.ood.regret)
    )
    assert "--keep-scores" in result.command
    assert (np.diff(evidence.spectrum) <= 0).all()
    assert sum(evidence.spectrum) == pytest.approx(1)  # of embeddings of norm 1


def test_scores_that_were_not_kept_are_had_by_running_again(small_world: Path) -> None:
    cells = plan(DENSENET, "cifar10", ["svhn"], ["baseline"])
    kept = small_world / f"{DENSENET}__cifar10__svhn__baseline.safetensors"
    run(cells, Options(out=small_world))
    assert not kept.exists()
    assert run(cells, Options(out=small_world, keep_scores=True)).seconds
    assert kept.exists()
    assert not run(cells, Options(out=small_world, keep_scores=True)).seconds
    run(cells, Options(out=small_world, force=True))
    assert not kept.exists()  # it would be that of an earlier run


def test_a_report_of_one_network_says_everything_once(small_world: Path, tmp_path: Path) -> None:
    folder = keep(small_world, "svhn,isun")
    done = call(folder, "--out", tmp_path / "report.html")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    made = report_of(choose_results(folder), folder)
    assert [(one.name, one.role) for one in made.sets] == [("CIFAR-10", "in"), ("iSUN", "out"), ("SVHN", "out")]
    assert made.tables == ()
    assert made.class_names[3] == "cat"
    assert made.facts["Results"] == "2 run, 0 not run"
    assert made.facts["Test accuracy"].endswith("% on CIFAR-10")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for result in load_results(folder):
        assert result.scores is not None
        assert result.scores.plus_pnml is not None
        assert f">{result.scores.method.auroc:.1f}</td>" in page
        assert f">{result.scores.plus_pnml.tnr_at_tpr95:.1f}</td>" in page
    assert str(small_world) not in page


def test_means_over_splits_stand_in_tables_of_their_own(small_world: Path, tmp_path: Path) -> None:
    folder = keep(small_world, "svhn,uniform", "gram,baseline", noise_seeds=2, limit=20)
    made = report_of(choose_results(folder, method="gram"), folder)
    assert (made.baseline_name, made.pnml_name) == ("Gram", "Gram+pNML")
    assert made.facts["Charts"].startswith("one draw of each set, or one split")
    (table,) = made.tables
    assert table.title == "DenseNet-BC-100, CIFAR-10"
    results = {result.ood: result.scores for result in load_results(folder) if result.method == "gram"}
    for row, ood in zip(table.rows, ("svhn", "uniform"), strict=True):
        scores = results[ood]
        assert scores is not None
        assert scores.plus_pnml is not None
        assert row[1:4] == ("Gram", scores.method.auroc, scores.plus_pnml.auroc)
    assert made.sets[0].labels is not None
    assert len(made.sets[0].labels) == len(made.sets[0]) == 11  # without the tenth held out
    done = call(folder, "--out", tmp_path / "report.html")
    assert "the charts are of --model densenet-bc-100 --ind cifar10 --method baseline" in done.stderr
    assert "  --model densenet-bc-100 --ind cifar10 --method gram" in done.stderr


def test_cells_with_in_distribution_scores_of_their_own_are_not_mixed(small_world: Path) -> None:
    folder = keep(small_world, "svhn,isun")
    path = folder / f"{DENSENET}__cifar10__svhn__baseline.safetensors"
    evidence = load_scores(path)
    save_scores(evidence._replace(ind=replace(evidence.ind, regret=2 * evidence.ind.regret)), path)
    made = report_of(choose_results(folder), folder)
    assert [one.name for one in made.sets] == ["CIFAR-10", "iSUN"]
    assert [row[0] for row in made.tables[0].rows] == ["iSUN", "SVHN"]


def test_results_without_scores_are_tables(tmp_path: Path) -> None:
    scores = Scores(evaluate([1, 2, 4], [3, 5]), plus_pnml=evaluate([1, 2, 3], [4, 5]))
    alone = Scores(evaluate([1, 2, 4], [3, 5]))
    for model, ind, ood, method, found in (
        ("resnet-34", "cifar10", "svhn", "baseline", scores),
        ("resnet-34", "svhn", "isun", "energy", alone),
    ):
        save_result(Cell(model=model, ind=ind, ood=ood, method=method, scores=found, date="2024-05-17T10:00"), tmp_path)
    why = "image set absent: isun"
    save_result(Cell(model="resnet-34", ind="cifar10", ood="isun", method="baseline", reason=why), tmp_path)
    done = call(tmp_path, "--out", tmp_path / "report.html")
    assert done.exit_code == 0, done.output
    assert "no scores were kept" in done.stderr
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert re.findall(r"<h3>(.*?)</h3>", page) == ["ResNet-34, CIFAR-10", "ResNet-34, SVHN"]
    assert "2 run, 1 not run" in page
    assert "ResNet-34, CIFAR-10 against iSUN with Baseline: image set absent: isun" in page
    assert ">83.3</td>" in page
    assert ">100.0</td>" in page
    assert page.count("–</td>") == 3
    assert len(choose_results(tmp_path, ind="cifar10")) == 2
    with pytest.raises(ValueError, match="has the method 'odin': choose from baseline, energy"):
        choose_results(tmp_path, method="odin")
    with pytest.raises(ValueError, match=f"there are some in .*{tmp_path}"):
        choose_results(tmp_path.parent)


def test_a_folder_where_nothing_could_be_run(tmp_path: Path) -> None:
    save_result(Cell(model="resnet-34", ind="cifar10", ood="isun", method="gram", reason="absent"), tmp_path)
    done = call(tmp_path, "--out", tmp_path / "report.html")
    assert done.exit_code == 1
    assert "none of the 1 results" in done.stderr
