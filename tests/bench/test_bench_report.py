"""Reports of benchmark results, with and without the scores that a run kept."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from typer.testing import CliRunner, Result

from pnml.cli import app
from pnml.metrics import evaluate
from pnml_bench import zoo
from pnml_bench.data import load
from pnml_bench.options import Options
from pnml_bench.protocol import plan
from pnml_bench.report import choose_results, report_of
from pnml_bench.results import Result as Cell
from pnml_bench.results import Scores
from pnml_bench.runner import run
from pnml_bench.saved_scores import load_scores
from pnml_bench.store import ResultStore, load_study

if TYPE_CHECKING:
    from pathlib import Path

DENSENET = "densenet-bc-100"


def run_keeping_scores(out: Path, ood: str, method: str = "baseline", **how: object) -> Path:
    options = Options(out=out, keep_scores=True, **how)  # type: ignore[arg-type]
    run(plan(DENSENET, "cifar10", ood.split(","), method.split(",")), options)
    return out / "scores" / options.full_study


def call(*words: object) -> Result:
    return CliRunner().invoke(app, ["report", *(str(word) for word in words)])


def test_saved_scores_are_those_of_the_network(small_world: Path) -> None:
    scores_folder = run_keeping_scores(small_world, "svhn")
    saved = load_scores(scores_folder / f"{DENSENET}__cifar10__svhn__baseline.safetensors")
    network = zoo.load("densenet-bc-100_cifar10")
    for one, images in ((saved.ind, load("cifar10")), (saved.ood, load("svhn"))):
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
    np.testing.assert_array_equal(saved.ind.labels, load("cifar10").labels)
    assert saved.ood.labels is None
    (result,) = load_study(small_world)
    assert result.scores == Scores(
        evaluate(saved.ind.baseline, saved.ood.baseline), evaluate(saved.ind.regret, saved.ood.regret)
    )
    assert "--keep-scores" in result.command
    assert (np.diff(saved.spectrum) <= 0).all()
    assert sum(saved.spectrum) == pytest.approx(1)  # of embeddings of norm 1


def test_a_report_of_one_network_has_charts_and_no_second_table(small_world: Path, tmp_path: Path) -> None:
    run_keeping_scores(small_world, "svhn,isun")
    done = call(small_world, "--out", tmp_path / "report.html")
    assert done.exit_code == 0, done.output
    assert done.stderr == ""
    made = report_of(choose_results(small_world), small_world)
    assert [(one.name, one.role) for one in made.sets] == [("CIFAR-10", "in"), ("iSUN", "out"), ("SVHN", "out")]
    assert made.tables == ()
    assert made.class_names[3] == "cat"
    assert made.facts["Results"] == "2 run, 0 not run"
    assert made.facts["Test accuracy"].endswith("% on CIFAR-10")
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    for result in load_study(small_world):
        assert result.scores is not None
        assert result.scores.plus_pnml is not None
        assert f">{result.scores.method.auroc:.1f}</td>" in page
        assert f">{result.scores.plus_pnml.tnr_at_tpr95:.1f}</td>" in page
    assert str(small_world) not in page


def test_means_over_splits_are_in_tables_beside_the_charts(small_world: Path, tmp_path: Path) -> None:
    run_keeping_scores(small_world, "svhn,uniform", "gram,baseline", noise_seeds=2, limit=20)
    made = report_of(choose_results(small_world, method="gram"), small_world)
    assert (made.baseline_name, made.pnml_name) == ("Gram", "Gram+pNML")
    assert made.facts["Charts"].startswith("one draw of each set, or one split")
    table, _, detection = made.tables
    assert (table.title, table.folded, table.charted) == ("DenseNet-BC-100, CIFAR-10: AUROC", False, "Gram+pNML")
    assert (detection.title, detection.folded) == ("DenseNet-BC-100, CIFAR-10: Detection accuracy", True)
    assert table.columns == ("OOD set", ("AUROC", "Gram+pNML"), ("AUROC", "Gram"))
    results = {result.ood: result.scores for result in load_study(small_world) if result.method == "gram"}
    for row, ood in zip(table.rows[:2], ("svhn", "uniform"), strict=True):
        scores = results[ood]
        assert scores is not None
        assert scores.plus_pnml is not None
        assert row[1:] == (scores.plus_pnml.auroc, scores.method.auroc)
    assert made.sets[0].labels is not None
    assert len(made.sets[0].labels) == len(made.sets[0]) == 11  # without the tenth held out
    done = call(small_world, "--study", "paper-limit-20", "--out", tmp_path / "report.html")
    assert "the charts are of --model densenet-bc-100 --ind cifar10 --method baseline" in done.stderr
    assert "  --model densenet-bc-100 --ind cifar10 --method gram" in done.stderr


def test_near_and_far_sets_have_means_and_the_best_of_a_row_is_bold(tmp_path: Path) -> None:
    low, high = evaluate([1, 2, 4], [3, 5]), evaluate([1, 2, 3], [4, 5])
    for ood, method, found in (
        ("svhn", "baseline", Scores(low, plus_pnml=high)),
        ("cifar100", "baseline", Scores(high, plus_pnml=low)),
        ("isun", "baseline", Scores(low, plus_pnml=high)),
        ("svhn", "energy", Scores(low)),
    ):
        ResultStore(tmp_path).append(
            Cell(model="resnet-34", ind="cifar10", ood=ood, method=method, scores=found, date="2024-05-17T10:00")
        )
    table = report_of(choose_results(tmp_path), tmp_path).tables[0]
    rows = {str(name): values for name, *values in table.rows}
    assert list(rows) == ["CIFAR-100", "iSUN", "SVHN", "Mean of far"]
    assert rows["Mean of far"] == [100.0, low.auroc, None], "Energy was not run on iSUN"
    assert call(tmp_path, "--out", tmp_path / "report.html").exit_code == 0
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    (svhn,) = re.findall(r'<th scope="row">SVHN</th>(.*?)</tr>', page.split("</table>")[0])
    assert re.findall(r'class="number( best)?">([\d.]+)', svhn) == [(" best", "100.0"), ("", "83.3"), ("", "83.3")]
    assert len(re.findall(r'<circle class="leading"', page)) == 4
