"""OpenOOD's CIFAR protocol (Zhang et al., 2023) as studies of the benchmark.

A ResNet-18 is trained for 100 epochs with three seeds, on CIFAR-10 and on CIFAR-100. Near sets are the other CIFAR and
TinyImageNet, far sets MNIST, SVHN, textures and places. A number is the mean over the near or the far sets, then over
the seeds, with their standard deviation; sets that are absent are named and left out for every method. Other than
there, no pictures are left out of TinyImageNet and Places365, MNIST is its test part, and pictures are resized to
squares.
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from pnml_bench.data import SETS
from pnml_bench.ood_data import needs_no_ood_data
from pnml_bench.openood_figures import Figures, Mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pnml_bench.results import Result

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
