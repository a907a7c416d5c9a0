from __future__ import annotations

import pytest

from studies.photographs.openood import (
    MEASURED_COLUMNS,
    PUBLISHED_COLUMNS,
    Board,
    Figures,
    Line,
    Mean,
    published,
    render,
)

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


@pytest.mark.parametrize(
    ("seeds", "said"),
    [
        (1, "One network of the protocol's 3, in percent."),
        (2, "Mean and standard deviation over 2 of 3 seeds, in percent."),
        (3, "Mean and standard deviation over 3 seeds, in percent."),
    ],
)
def test_the_number_of_seeds_is_said(seeds: int, said: str) -> None:
    board = Board("cifar10", seeds, ("cifar100",), ("svhn",), {}, (Line("knn", MEASURED),))
    assert f"Near: CIFAR-100. Far: SVHN. {said}" in render([board])


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


def test_other_published_methods_follow_best_first_with_the_regret_among_them() -> None:
    _, others = tables("baseline", "knn", "pnml")
    assert others[0] == list(PUBLISHED_COLUMNS)
    names = [row[0] for row in others[1:]]
    assert {"MSP", "KNN"}.isdisjoint(names)
    assert sorted(names) == sorted(
        [name for ind, name in published() if ind == "cifar10" and name not in {"MSP", "KNN"}]
        + ["**pnml**, measured here"]
    )
    means = [(float(row[2].split()[0]) + float(row[3].split()[0])) / 2 for row in others[1:]]
    assert means == sorted(means, reverse=True)
    assert next(row for row in others if row[0] == "NAC") == [
        "NAC",
        "unknown",
        "90.93 ± 0.23",
        "94.60 ± 0.49",
        "–",
        "–",
    ]


def test_published_figures_are_those_of_the_in_distribution_set() -> None:
    measured, others = tables("rmd", ind="cifar100")
    assert measured[1][3] == "80.15 ± 0.11"
    assert "CORE" in {row[0] for row in others}
    assert all("pnml" not in row[0] for row in others)


def test_a_regret_that_could_not_be_measured_comes_last() -> None:
    _, others = tables("pnml", figures=Figures())
    assert others[-1] == ["**pnml**, measured here", "no", "–", "–", "–", "–"]
