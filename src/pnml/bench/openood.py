"""OpenOOD's CIFAR protocol (Zhang et al., 2023) as studies of the benchmark, and its table.

A ResNet-18 is trained for 100 epochs with three seeds, on CIFAR-10 and on CIFAR-100. Near sets are the other CIFAR and
TinyImageNet, far sets MNIST, SVHN, textures and places. A number is the mean over the near or the far sets, then over
the seeds, with their standard deviation; sets that are absent are named and left out for every method. Other than
there, no pictures are left out of TinyImageNet and Places365, MNIST is its test part, and pictures are resized to
squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Literal

from pnml.bench.data import SETS
from pnml.bench.layout import markdown_table
from pnml.bench.ood_data import needs_no_ood_data
from pnml.report.labels import label

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pnml.bench.results import Result

MODEL = "resnet-18-small"
SEEDS = (0, 1, 2)
FAR = ("mnist", "svhn", "textures", "places365")
COLUMNS = ("Method", "Needs no OOD data", "Near AUROC", "Far AUROC", "Near FPR@95", "Far FPR@95")

_OTHER = {"cifar10": "cifar100", "cifar100": "cifar10"}
_NONE = "–"


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
class Mean:
    """The mean of several seeds, and their standard deviation."""

    value: float
    spread: float

    def __str__(self) -> str:
        return f"{self.value:.1f} ± {self.spread:.1f}"


@dataclass(frozen=True)
class Line:
    """One method: AUROC and FPR at TPR 95% in percent, over the near and over the far sets; None where it lacks one."""

    method: str
    near_auroc: Mean | None
    far_auroc: Mean | None
    near_fpr: Mean | None
    far_fpr: Mean | None

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of ``COLUMNS``."""
        means = (self.near_auroc, self.far_auroc, self.near_fpr, self.far_fpr)
        known = "yes" if needs_no_ood_data(self.method) else "no"
        return self.method, known, *(_NONE if mean is None else str(mean) for mean in means)


@dataclass(frozen=True)
class Board:
    """The lines of one in-distribution set, methods that need no OOD data first, and what was measured."""

    ind: str
    near: tuple[str, ...]
    far: tuple[str, ...]
    absent: dict[str, str]
    lines: tuple[Line, ...]


def board(ind: str, studies: Sequence[Sequence[Result]]) -> Board:
    """Return the board of an in-distribution set from the results of each seed.

    Sets that some seed lacks altogether are absent, with the reason.
    """
    results = [{(one.method, one.ood): one for one in found if one.ind == ind} for found in studies]
    wanted = (*near_sets(ind), *FAR)
    absent = {ood: reason for ood in wanted if (reason := _absent(ood, results)) is not None}
    near, far = (tuple(ood for ood in sets if ood not in absent) for sets in (near_sets(ind), FAR))
    methods = dict.fromkeys(method for found in results for method, _ in found)
    lines = [
        Line(
            method,
            _mean(method, near, results, "auroc"),
            _mean(method, far, results, "auroc"),
            _mean(method, near, results, "fpr"),
            _mean(method, far, results, "fpr"),
        )
        for method in methods
    ]
    lines.sort(key=lambda line: (not needs_no_ood_data(line.method), -_both(line)))
    return Board(ind, near, far, absent, tuple(lines))


def render(boards: Sequence[Board]) -> str:
    """Write boards as Markdown."""
    blocks = []
    for one in boards:
        near, far = (", ".join(map(label, sets)) or "none" for sets in (one.near, one.far))
        blocks += [
            f"### {label(one.ind)}",
            f"Near: {near}. Far: {far}. Mean and standard deviation over {len(SEEDS)} seeds, in percent.",
            markdown_table([COLUMNS, *(line.texts for line in one.lines)]),
        ]
        blocks += ["\n".join(f"- {label(ood)}: {reason}" for ood, reason in one.absent.items())] if one.absent else []
    return "\n\n".join(blocks) + "\n"


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
    metric: Literal["auroc", "fpr"],
) -> Mean | None:
    """Return the mean of a metric over sets, then over seeds; None where a method lacks one of them."""
    seeds = []
    for found in results:
        scores = [result.scores for ood in sets if (result := found.get((method, ood))) is not None]
        metrics = [one.method for one in scores if one is not None]
        if not sets or len(metrics) < len(sets):
            return None
        seeds.append(fmean(one.auroc if metric == "auroc" else 100 - one.tnr_at_tpr95 for one in metrics))
    return Mean(fmean(seeds), stdev(seeds) if len(seeds) > 1 else 0.0)


def _both(line: Line) -> float:
    """Return the mean of the near and the far AUROC, to sort by; -1 where one is lacking."""
    if line.near_auroc is None or line.far_auroc is None:
        return -1.0
    return (line.near_auroc.value + line.far_auroc.value) / 2
