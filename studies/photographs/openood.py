"""OpenOOD's CIFAR protocol (Zhang et al., 2023): its boards, from studies of the benchmark, and what OpenOOD published.

A ResNet-18 is trained for 100 epochs with three seeds, on CIFAR-10 and on CIFAR-100. Near sets are the other CIFAR and
TinyImageNet, far sets MNIST, SVHN, textures and places. A number is the mean over the near or the far sets, then over
the seeds, with their standard deviation; sets that are absent are named and left out for every method. Other than
there, no pictures are left out of TinyImageNet and Places365, MNIST is its test part, and pictures are resized to
squares. OOD is the positive class of FPR@95, as it is in OpenOOD: the share of in-distribution pictures flagged by the
threshold that flags 95% of the OOD pictures.

The published figures, of a ResNet-18 trained by plain cross entropy, stand in ``openood_published.csv``; a source is a
public repository and a commit. The AUROCs are the leaderboard's (https://zjysteven.github.io/OpenOOD/). Some methods
were handed in as one number each, shown there as "± 0.00": their spread is left empty. OpenOOD's standard deviations
divide by the number of seeds. The leaderboard has no FPR@95. These were measured on the same networks by the same
evaluator, by authors of a method or by a third party, and are given only where AUROCs from the same source agree with
the leaderboard to 0.1 points.
"""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from pnml.report.labels import label
from pnml_bench.data import SETS
from pnml_bench.layout import markdown_table
from pnml_bench.ood_data import needs_no_ood_data

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pnml_bench.results import Result


@dataclass(frozen=True)
class Mean:
    """The mean over seeds, and their standard deviation; None where there is none.

    >>> str(Mean(88.03, 0.25)), str(Mean(90.42))
    ('88.03 ± 0.25', '90.42')
    """

    value: float
    spread: float | None = None

    def __str__(self) -> str:
        return f"{self.value:.2f}" + ("" if self.spread is None else f" ± {self.spread:.2f}")


@dataclass(frozen=True)
class Figures:
    """AUROC and FPR@95 over the near and over the far sets; None where there is none."""

    near_auroc: Mean | None = None
    far_auroc: Mean | None = None
    near_fpr: Mean | None = None
    far_fpr: Mean | None = None

    @property
    def texts(self) -> tuple[str, ...]:
        """The four means, in the order of the fields."""
        means = (self.near_auroc, self.far_auroc, self.near_fpr, self.far_fpr)
        return tuple("–" if mean is None else str(mean) for mean in means)

    @property
    def mean_auroc(self) -> float:
        """The mean of the near and the far AUROC, to sort by; -1 where one is lacking."""
        if self.near_auroc is None or self.far_auroc is None:
            return -1.0
        return (self.near_auroc.value + self.far_auroc.value) / 2


MODEL = "resnet-18-small"
SEEDS = (0, 1, 2)
FAR = ("mnist", "svhn", "textures", "places365")
METRICS = ("auroc", "fpr_at_tpr95_ood")
"""AUROC and FPR@95 as fields of ``pnml.metrics.Metrics``; OOD is the positive class, as in OpenOOD."""

_OTHER = {"cifar10": "cifar100", "cifar100": "cifar10"}


def near_sets(ind: str) -> tuple[str, str]:
    """Return the near sets of ``ind``, "cifar10" or "cifar100".

    TinyImageNet is its labelled validation pictures, as OpenOOD has it, where they are at hand, otherwise the
    publisher's test pictures.
    """
    at_hand = SETS["tinyimagenet"].find("test") is not None
    return _OTHER[ind], "tinyimagenet" if at_hand else "tinyimagenet_resize"


def study(seed: int) -> str:
    """Return the study that holds the results of the networks of a seed.

    >>> study(2)
    'openood-seed-2'
    """
    return f"openood-seed-{seed}"


@dataclass(frozen=True)
class Line:
    """One method, and what was measured of it."""

    method: str
    figures: Figures


@dataclass(frozen=True)
class Board:
    """The lines of one in-distribution set, methods that need no OOD data first, what was measured, and how often."""

    ind: str
    seeds: int
    near: tuple[str, ...]
    far: tuple[str, ...]
    absent: dict[str, str]
    lines: tuple[Line, ...]


def board(
    ind: str,
    studies: Sequence[Sequence[Result]],
    *,
    near: tuple[str, ...] | None = None,
    far: tuple[str, ...] = FAR,
) -> Board:
    """Return the board of an in-distribution set from the results of each seed.

    Args:
        ind: the in-distribution set.
        studies: the results of one network, for each seed.
        near: its near sets; by default those of OpenOOD, with the form of TinyImageNet that was measured.
        far: its far sets.

    Sets that some seed lacks altogether are absent, with the reason.
    """
    results = [{(one.method, one.ood): one for one in found if one.ind == ind} for found in studies]
    if near is None:
        measured = any(ood == "tinyimagenet" for found in results for _, ood in found)
        near = (_OTHER[ind], "tinyimagenet" if measured else "tinyimagenet_resize")
    absent = {ood: reason for ood in (*near, *far) if (reason := _absent(ood, results)) is not None}
    near, far = (tuple(ood for ood in sets if ood not in absent) for sets in (near, far))
    methods = dict.fromkeys(method for found in results for method, _ in found)
    lines = [
        Line(method, Figures(*(_mean(method, sets, results, metric) for metric in METRICS for sets in (near, far))))
        for method in methods
    ]
    lines.sort(key=lambda line: (not needs_no_ood_data(line.method), -line.figures.mean_auroc))
    return Board(ind, len(results), near, far, absent, tuple(lines))


def _absent(ood: str, results: Sequence[Mapping[tuple[str, str], Result]]) -> str | None:
    """Return why a set has no result of any method for some seed; None if every seed has one."""
    for seed, found in enumerate(results):
        here = [result for (_, name), result in found.items() if name == ood]
        if not any(result.scores for result in here):
            reasons = [result.reason for result in here if result.reason]
            return reasons[0] if reasons else f"no result with seed {seed}"
    return None


def _mean(
    method: str,
    sets: tuple[str, ...],
    results: Sequence[Mapping[tuple[str, str], Result]],
    metric: str,
) -> Mean | None:
    """Return the mean of a metric over sets, then over seeds; None where a method lacks one of them."""
    seeds = []
    for found in results:
        scores = [result.scores for ood in sets if (result := found.get((method, ood))) is not None]
        metrics = [one.method for one in scores if one is not None]
        if not sets or len(metrics) < len(sets):
            return None
        seeds.append(fmean(getattr(one, metric) for one in metrics))
    return Mean(fmean(seeds), stdev(seeds) if len(seeds) > 1 else None)


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
    text = Path(__file__).with_name("openood_published.csv").read_text(encoding="utf-8")
    return {(row["ind"], row["method"]): _line(row) for row in csv.DictReader(text.splitlines())}


def _line(row: dict[str, str]) -> Published:
    method = row["method"]
    figures = Figures(*(_published_mean(row, name) for name in ("near_auroc", "far_auroc", "near_fpr", "far_fpr")))
    return Published(method, None if method in _UNKNOWN else method in _TUNED, figures)


def _published_mean(row: dict[str, str], name: str) -> Mean | None:
    value, spread = row[name], row[f"{name}_spread"]
    return Mean(float(value), float(spread) if spread else None) if value else None


COLUMNS = ("Near AUROC", "Far AUROC", "Near FPR@95", "Far FPR@95")
MEASURED_COLUMNS = ("Method", "Needs no OOD data", *(name for metric in COLUMNS for name in (metric, "published")))
PUBLISHED_COLUMNS = ("Method", "Chosen on OOD data", *COLUMNS)

_MARK = "§"
_LEGEND = f"""\
- In brackets: the method's name in OpenOOD. {_MARK} OpenOOD chose a value of it on OOD validation pictures; here
  nothing is.
- Published are the AUROCs of OpenOOD's leaderboard, on three networks of its own and all of its near and far sets. So
  ours and published numbers differ by networks, pictures and settings, too.
- The leaderboard has no FPR@95. Those here were measured by others on OpenOOD's networks; – where none is known.
- FPR@95 is the share of in-distribution pictures flagged where 95% of the OOD pictures are.
- A published spread divides by the number of seeds, one of ours by one less. Without a spread: a single number was
  published."""


def render(boards: Sequence[Board]) -> str:
    """Write boards as Markdown."""
    blocks = []
    for one in boards:
        near, far = (", ".join(map(label, sets)) or "none" for sets in (one.near, one.far))
        blocks += [
            f"### {label(one.ind)}",
            f"Near: {near}. Far: {far}. {_spread(one.seeds)}, in percent.",
        ]
        blocks += ["\n".join(f"- {label(ood)}: {reason}" for ood, reason in one.absent.items())] if one.absent else []
        blocks += [
            markdown_table([MEASURED_COLUMNS, *(_measured(one.ind, line) for line in one.lines)]),
            "Published by OpenOOD, of methods that are not measured above (in bold: measured here):",
            markdown_table([PUBLISHED_COLUMNS, *_others(one)]),
        ]
    return "\n\n".join([*blocks, _LEGEND]) + "\n"


def _spread(seeds: int) -> str:
    """Return what numbers are taken over, and how much of the protocol that is."""
    if seeds == 1:
        return f"One network of the protocol's {len(SEEDS)}"
    return f"Mean and standard deviation over {seeds}{'' if seeds == len(SEEDS) else f' of {len(SEEDS)}'} seeds"


def _measured(ind: str, line: Line) -> tuple[str, ...]:
    """Return the texts of a measured method, each number beside the published one."""
    theirs = published().get((ind, NAMES.get(line.method, "")))
    name = line.method
    if theirs is not None:
        name += f" ({theirs.method}{' ' + _MARK if theirs.tuned else ''})"
    figures = Figures() if theirs is None else theirs.figures
    pairs = zip(line.figures.texts, figures.texts, strict=True)
    return name, "yes" if needs_no_ood_data(line.method) else "no", *(text for pair in pairs for text in pair)


def _others(board: Board) -> list[tuple[str, ...]]:
    """Return the texts of the published methods that were not measured, with the regret among them, best first."""
    measured = {NAMES.get(line.method) for line in board.lines}
    chosen = {True: "yes", False: "no", None: "unknown"}
    rows = [
        (line.figures, line.method, chosen[line.tuned])
        for (ind, method), line in published().items()
        if ind == board.ind and method not in measured
    ]
    rows += [(line.figures, "**pnml**, measured here", "no") for line in board.lines if line.method == "pnml"]
    rows.sort(key=lambda row: -row[0].mean_auroc)
    return [(method, tuned, *figures.texts) for figures, method, tuned in rows]
