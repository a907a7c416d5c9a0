"""Published figures, against numbers typed from OpenOOD's leaderboard and from the sources of FPR@95."""

from __future__ import annotations

import csv
import re
from pathlib import Path

import pytest

from pnml_bench.methods import ALL_METHODS
from studies.photographs.openood import NAMES, Figures, Mean, published

ROOT = Path(__file__).parents[2]
ROWS = list(
    csv.DictReader((ROOT / "studies" / "photographs" / "openood_published.csv").read_text("utf-8").splitlines())
)


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


def test_every_row_is_read_once_and_names_its_sources() -> None:
    assert len(published()) == len(ROWS)
    for row in ROWS:
        assert re.fullmatch(r"zjysteven/OpenOOD@[0-9a-f]{7}", row["auroc_source"])
        assert bool(row["fpr_source"]) == bool(row["near_fpr"]) == bool(row["far_fpr"])
        assert re.fullmatch(r"([\w-]+/[\w-]+@[0-9a-f]{7})?", row["fpr_source"])


def test_figures_are_percentages_and_every_line_has_both_aurocs() -> None:
    for line in published().values():
        assert line.figures.mean_auroc > 0
        means = (line.figures.near_auroc, line.figures.far_auroc, line.figures.near_fpr, line.figures.far_fpr)
        assert all(0 < mean.value < 100 and (mean.spread or 0) < 20 for mean in means if mean is not None)


def test_names_are_of_the_benchmark_and_on_both_leaderboards() -> None:
    assert set(NAMES) <= set(ALL_METHODS)
    assert all((ind, name) in published() for name in NAMES.values() for ind in ("cifar10", "cifar100"))


@pytest.mark.parametrize(
    ("method", "tuned"),
    [("KNN", True), ("GEN", True), ("OpenGAN", True), ("DICE", False), ("EBO", False), ("MSP", False), ("NAC", None)],
)
def test_methods_chosen_on_ood_data_are_marked(method: str, tuned: bool | None) -> None:  # noqa: FBT001
    assert published()["cifar10", method].tuned is tuned
