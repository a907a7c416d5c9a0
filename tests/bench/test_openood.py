from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from pnml.bench import zoo
from pnml.bench.methods import ALL_METHODS
from pnml.bench.openood import FAR, board, near_sets
from pnml.bench.openood_figures import Figures, Mean
from pnml.bench.openood_table import render
from pnml.bench.results import Result, Scores
from pnml.bench.zoo.resnet_cifar import ResNetCifar
from pnml.metrics import Metrics

PROGRAM = Path(__file__).parents[2] / "benchmarks" / "openood_cifar.py"
NEAR = ("cifar100", "tinyimagenet_resize")


def result(method: str, ood: str, auroc: float | None, fpr: float = 60.0) -> Result:
    scores = None if auroc is None else Scores(Metrics(auroc, 1.0, 50.0, 2.0, 3.0, fpr_at_tpr95_ood=fpr))
    reason = None if scores else f"{ood} is absent"
    return Result(model="resnet-18-small", ind="cifar10", ood=ood, method=method, scores=scores, reason=reason)


@pytest.fixture(autouse=True)
def no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PNML_DATA", str(tmp_path))
    monkeypatch.setenv("PNML_CACHE", str(tmp_path / "cache"))


def seeds(method: str, near: tuple[float, ...], far: float) -> list[list[Result]]:
    """Return the results of one method for three seeds, whose near AUROC differs."""
    return [
        [
            *(result(method, ood, auroc) for ood in NEAR),
            *(result(method, ood, far, fpr=30.0) for ood in FAR if ood != "places365"),
            result(method, "places365", None),
        ]
        for auroc in near
    ]


def test_means_over_sets_and_seeds_with_their_spread() -> None:
    found = board("cifar10", seeds("knn", (80.0, 90.0, 100.0), 70.0))
    (line,) = found.lines
    assert line.figures == Figures(Mean(90.0, 10.0), Mean(70.0, 0.0), Mean(60.0, 0.0), Mean(30.0, 0.0))
    assert found.absent == {"places365": "places365 is absent"}
    assert found.far == ("mnist", "svhn", "textures")
    assert "- Places365: places365 is absent" in render([found])


def test_one_seed_has_no_spread() -> None:
    (line,) = board("cifar10", seeds("knn", (80.0,), 70.0)).lines
    assert line.figures.near_auroc == Mean(80.0)


def test_methods_that_need_no_ood_data_come_first() -> None:
    made = [seeds(method, (near, near, near), 70.0) for method, near in (("dice", 99.0), ("gen", 60.0), ("knn", 80.0))]
    found = board("cifar10", [[one for method in seed for one in method] for seed in zip(*made, strict=True)])
    assert [line.method for line in found.lines] == ["knn", "gen", "dice"]


def test_a_method_that_lacks_a_set_has_no_mean_of_them() -> None:
    made = seeds("knn", (80.0, 80.0, 80.0), 70.0)
    made[1] = [*made[1], *(result("gen", ood, 50.0) for ood in NEAR)]
    knn, gen = board("cifar10", made).lines
    assert (knn.method, gen.figures, gen.figures.texts) == ("knn", Figures(), ("–", "–", "–", "–"))


def test_a_seed_without_results_makes_its_sets_absent() -> None:
    found = board("cifar10", [*seeds("knn", (80.0, 80.0), 70.0), []])
    assert (found.near, found.far) == ((), ())
    assert found.absent["svhn"] == "no result with seed 2"


def test_near_tinyimagenet_is_its_labelled_part_where_it_is_at_hand(tmp_path: Path) -> None:
    assert near_sets("cifar100") == ("cifar10", "tinyimagenet_resize")
    folder = tmp_path / "tiny-imagenet-200"
    (folder / "val" / "images").mkdir(parents=True)
    (folder / "wnids.txt").touch()
    (folder / "val" / "val_annotations.txt").touch()
    assert near_sets("cifar100") == ("cifar10", "tinyimagenet")


def test_the_program_trains_measures_and_can_be_started_again(
    made_images: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PNML_DATA", str(made_images))
    monkeypatch.setitem(
        zoo.ARCHITECTURES, "resnet-18-small", lambda classes: ResNetCifar(classes, blocks=(1, 1), width=8)
    )
    words = ["--runs", tmp_path / "runs", "--out", tmp_path / "results", "--table", tmp_path / "table.md"]
    monkeypatch.setattr(sys, "argv", [str(PROGRAM), *map(str, words), "--epochs", "1", "--device", "cpu"])
    program = runpy.run_path(str(PROGRAM))
    program["main"].__globals__["METHODS"] = ("baseline", "pnml")
    program["main"]()
    first = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert first.count("| baseline (MSP) |") == 2
    assert "- Textures: image set absent: textures" in first
    assert len(list((tmp_path / "runs").glob("*.safetensors"))) == 6
    cells = (tmp_path / "results" / "cells.csv").read_text(encoding="utf-8")
    program["main"]()
    assert (tmp_path / "table.md").read_text(encoding="utf-8") == first
    again = (tmp_path / "results" / "cells.csv").read_text(encoding="utf-8")
    assert again.startswith(cells)
    assert set(program["METHODS"]) & set(ALL_METHODS) == set()  # groups
    capsys.readouterr()
