"""Boards of OpenOOD's protocol, the figures that OpenOOD published, and both as Markdown."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pnml.metrics import Metrics
from pnml_bench.results import Result, Scores
from studies.photographs.openood import (
    FAR,
    MEASURED_COLUMNS,
    Board,
    Figures,
    Line,
    Mean,
    board,
    published,
    render,
)

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


@pytest.mark.parametrize(
    ("ind", "method", "figures"),
    [
        ("cifar10", "MSP", Figures(Mean(88.03, 0.25), Mean(90.73, 0.43), Mean(48.17, 3.92), Mean(31.71, 1.83))),
        ("cifar10", "RMDS", Figures(Mean(89.80, 0.28), Mean(92.20, 0.21), Mean(38.88, 2.38), Mean(25.35, 0.73))),
        ("cifar10", "VIM", Figures(Mean(88.68, 0.28), Mean(93.48, 0.24))),
        ("cifar10", "fDBD", Figures(Mean(90.42), Mean(93.16))),
        ("cifar100", "EBO", Figures(Mean(80.91, 0.08), Mean(79.77, 0.61), Mean(55.61, 0.60), Mean(56.58, 1.38))),
        ("cifar100", "i-ODIN", Figures(Mean(81.10, 0.07), Mean(79.69, 0.56), Mean(55.33, 0.64), Mean(56.63, 1.30))),
        ("cifar100", "AdaSCALE-L", Figures(Mean(80.54, 0.16), Mean(83.38, 0.20), Mean(57.30, 0.60), Mean(50.98, 0.69))),
    ],
)
def test_figures_are_those_of_the_source(ind: str, method: str, figures: Figures) -> None:
    assert published()[ind, method].figures == figures


MEASURED = Figures(Mean(90.0, 1.0), Mean(91.0, 2.0), Mean(40.0, 3.0), Mean(30.0, 4.0))


def tables(*methods: str, ind: str = "cifar10", figures: Figures = MEASURED) -> list[list[list[str]]]:
    """Return the tables of a rendered board, each a list of rows of cells."""
    lines = tuple(Line(method, figures) for method in methods)
    text = render([Board(ind, 3, ("cifar100",), ("svhn",), {}, lines)])
    found: list[list[list[str]]] = []
    for block in text.split("\n\n"):
        if block.startswith("|"):
            rows = [[cell.strip() for cell in row.strip("|").split("|")] for row in block.splitlines()]
            found.append([rows[0], *rows[2:]])
    return found


def test_measured_numbers_stand_beside_the_published_ones_of_the_same_method() -> None:
    measured, _ = tables("baseline", "knn", "pnml")
    assert measured[0] == list(MEASURED_COLUMNS)
    assert measured[1] == [
        *("baseline (MSP)", "yes", "90.00 ± 1.00", "88.03 ± 0.25", "91.00 ± 2.00", "90.73 ± 0.43"),
        *("40.00 ± 3.00", "48.17 ± 3.92", "30.00 ± 4.00", "31.71 ± 1.83"),
    ]
    assert measured[2][0] == "knn (KNN §)"
    assert measured[3][0] == "pnml"
    assert measured[3][3::2] == ["–"] * 4
