from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pnml.metrics import Metrics
from pnml_bench.results import Result, Scores
from studies.photographs.openood import FAR, Figures, Mean, board, near_sets, render

if TYPE_CHECKING:
    from pathlib import Path

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


def test_near_tinyimagenet_is_the_form_that_was_measured() -> None:
    made = [[*found, result("knn", "tinyimagenet", 60.0)] for found in seeds("knn", (80.0, 90.0, 100.0), 70.0)]
    assert board("cifar10", made).near == ("cifar100", "tinyimagenet")


def test_other_sets_than_openood_s() -> None:
    made = [[result("knn", "my-near", 60.0), result("knn", "isun", 90.0), result("knn", "svhn", 10.0)]]
    found = board("cifar10", made, near=("my-near",), far=("isun", "lsun_crop"))
    assert (found.near, found.far, list(found.absent)) == (("my-near",), ("isun",), ["lsun_crop"])
    assert found.lines[0].figures == Figures(Mean(60.0), Mean(90.0), Mean(60.0), Mean(60.0))
