"""The numbers of the programs about texts, for the guide and for the summary of families."""

from __future__ import annotations

from math import sqrt
from statistics import fmean, stdev
from typing import TYPE_CHECKING, Any

from pnml_bench.layout import markdown_table
from pnml_bench.ood_data import needs_no_ood_data
from studies.boards import OURS
from studies.families.tables import CLASSIFIERS, mean, text_tasks

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

METHODS = {
    "pnml": "`pnml`",
    "pnml-last": "`pnml`, the last layer alone",
    "rmd": "relative Mahalanobis distance (RMD)",
    "baseline": "largest probability (MSP)",
    "gen": "generalized entropy (GEN)",
    "energy": "Energy",
    "knn": "nearest neighbours (kNN)",
}
NAMES = {
    "text": ("BANKING77", "frozen encoder"),
    "text-fine-tuned": ("BANKING77", "fine-tuned"),
    "clinc150": ("CLINC150", "frozen encoder"),
    "clinc150-fine-tuned": ("CLINC150", "fine-tuned"),
}
KINDS = {"Mean AUROC": ("near", "far"), "Near AUROC": ("near",)}


def intents(folder: Path) -> str:
    """Return the AUROC of some methods on questions that no class is for, by data and classifier."""
    records = measured(folder)
    lines = [("AUROC", *(", ".join(NAMES[name]) for name in records))]
    for method, words in METHODS.items():
        found = (mean(record, method, "auroc", ("near",)) for record in records.values())
        lines.append((words, *("–" if one is None else str(one) for one in found)))
    return markdown_table(lines)


def summary(folder: Path) -> str:
    """Return a line for each kind of classifier: the AUROC of ``pnml``, its place, and how far it is ahead."""
    head = ["Questions", "Classifier"]
    for kind in KINDS:
        head += [kind, "Place", "Ahead of the best other by"]
    lines = []
    for name, record in measured(folder).items():
        lines.append([*NAMES[name], *(cell for kinds in KINDS.values() for cell in standing(record, kinds))])
    return markdown_table([head, *lines])


def measured(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the records of the kinds of classifiers that were measured."""
    return {name: record for name in CLASSIFIERS if (record := text_tasks(folder, name))["tasks"]}


def standing(record: dict[str, Any], kinds: Sequence[str]) -> tuple[str, str, str]:
    """Return the mean of ``pnml``, its place among methods that need no OOD data, and its lead with standard error."""
    values = aurocs(record, kinds)
    means = {method: fmean(found) for method, found in values.items()}
    place = 1 + sum(value > means["pnml"] for value in means.values())
    best = max((method for method in means if method not in OURS), key=means.__getitem__)
    leads = [ours - theirs for ours, theirs in zip(values["pnml"], values[best], strict=True)]
    lead = round(fmean(leads), 2) + 0.0  # no minus before a zero
    ahead = f"{lead:+.2f} ± {stdev(leads) / sqrt(len(leads)):.2f}".replace("-", "−")
    return f"{means['pnml']:.1f}", str(place), f"{ahead} ({best})"


def aurocs(record: dict[str, Any], kinds: Sequence[str]) -> dict[str, list[float]]:
    """Return the AUROC on each task, the mean over kinds of sets, of the methods that need no OOD data."""
    tasks = [task["auroc"] for task in record["tasks"].values()]
    free = [method for method in tasks[0] if needs_no_ood_data(method) and all(method in task for task in tasks)]
    return {method: [of_kinds(task[method], kinds) for task in tasks] for method in free}


def of_kinds(sets: dict[str, float], kinds: Sequence[str]) -> float:
    """Return the mean over kinds of the mean over sets of each."""
    return fmean(fmean(value for ood, value in sets.items() if ood.startswith(kind)) for kind in kinds)
