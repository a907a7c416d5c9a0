"""The figures of OpenOOD's leaderboard for a ResNet-18 trained by plain cross entropy, as published.

They stand in the packaged ``openood_published.csv``; a source is a public repository and a commit. The AUROCs are the
leaderboard's (https://zjysteven.github.io/OpenOOD/). Some methods were handed in as one number each, shown there as
"± 0.00": their spread is left empty. OpenOOD's standard deviations divide by the number of seeds.

The leaderboard has no FPR@95. These were measured on the same networks by the same evaluator, by authors of a method or
by a third party, and are given only where AUROCs from the same source agree with the leaderboard to 0.1 points.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from pnml_bench.openood_figures import Figures, Mean

NAMES = {
    "baseline": "MSP",
    "energy": "EBO",
    "maxlogit": "MLS",
    "mahalanobis": "MDS",
    "rmd": "RMDS",
    "kl-matching": "KLM",
    "vim": "VIM",
    "knn": "KNN",
    "react": "ReAct",
    "ash": "ASH",
    "she": "SHE",
    "gen": "GEN",
    "dice": "DICE",
    "scale": "SCALE",
    "fdbd": "fDBD",
    "nci": "NCI",
    "odin": "ODIN",
    "gram": "Gram",
    "nac": "NAC",
}
"""OpenOOD's names of methods of the benchmark, where the leaderboard has the method."""

# configs/postprocessors/*.yml of Jingkang50/OpenOOD at 3c35632: APS_mode is true, and postprocessor_sweep has more than
# one setting to choose from, by the AUROC on OOD validation pictures. OpenGAN has no sweep; its epoch is chosen so
# (openood/pipelines/train_opengan_pipeline.py).
_TUNED = {
    *("ASH", "AdaSCALE-A", "AdaSCALE-L", "fDBD", "GEN", "i-ODIN", "KNN"),
    *("NCI", "ODIN", "OpenGAN", "ReAct", "Relation", "SCALE", "VIM"),
}
# Handed in by their authors; that repository has no configuration of them.
_UNKNOWN = {"CombOOD", "CORE", "NAC", "OTOD", "WeiPer+KLD"}


@dataclass(frozen=True)
class Published:
    """One line of the leaderboard.

    Attributes:
        method: OpenOOD's name.
        tuned: whether something of the method was chosen on OOD validation pictures; None where it is unknown.
    """

    method: str
    tuned: bool | None
    figures: Figures


@cache
def published() -> dict[tuple[str, str], Published]:
    """Return the published lines by in-distribution set and OpenOOD's name of the method.

    >>> line = published()["cifar10", "KNN"]
    >>> line.tuned, str(line.figures.near_auroc), str(line.figures.far_auroc)
    (True, '90.64 ± 0.20', '92.96 ± 0.14')
    """
    text = files("pnml_bench").joinpath("openood_published.csv").read_text(encoding="utf-8")
    return {(row["ind"], row["method"]): _line(row) for row in csv.DictReader(text.splitlines())}


def _line(row: dict[str, str]) -> Published:
    method = row["method"]
    figures = Figures(*(_mean(row, name) for name in ("near_auroc", "far_auroc", "near_fpr", "far_fpr")))
    return Published(method, None if method in _UNKNOWN else method in _TUNED, figures)


def _mean(row: dict[str, str], name: str) -> Mean | None:
    value, spread = row[name], row[f"{name}_spread"]
    return Mean(float(value), float(spread) if spread else None) if value else None
