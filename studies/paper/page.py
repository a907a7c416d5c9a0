"""The numbers of the paper's reproduction, for the pages: counts, agreement, differences and what they come from."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import astuple
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple

from pnml.report.labels import label
from pnml_bench.layout import markdown_table
from pnml_bench.render import Format, render
from pnml_bench.tables import NETWORKS, RETRAINED_STUDY, Sources, build_tables, count, mean_difference
from studies.trainings import read_trainings

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pnml_bench.results import Result
    from pnml_bench.tables import Cell

LARGE = 2.0
"""Differences to the paper above this, in points, get an experiment or the words "not known"."""

METRICS = ("auroc", "tnr_at_tpr95", "detection_accuracy")
NOT_KNOWN = "not known"
TRAINING = "not known; the network is another training"


class Difference(NamedTuple):
    """A number of ours that is far from the paper's, and what an experiment says about it."""

    cell: Cell
    kind: str
    paper: float
    ours: float
    cause: str
    evidence: str


def tables(results: Sequence[Result]) -> str:
    """Return the page of all tables."""
    return "# The paper's tables\n\nWritten by `pnml tables --format markdown`.\n\n" + render(
        build_tables(Sources(results)), Format.MARKDOWN
    )


def counts(results: Sequence[Result]) -> str:
    """Return how many cells were measured, and on what."""
    found = count(build_tables(Sources(results)))
    return "\n\n".join(fill(text, 120) for text in (str(found), *found.differences))


def agreement(results: Sequence[Result]) -> str:
    """Return the mean absolute difference by network, method and metric."""
    groups: dict[tuple[str, str, str], list[Cell]] = defaultdict(list)
    for cell in _cells(results):
        if cell.network is not None:
            groups[cell.paper.model, cell.network, cell.paper.method].append(cell)
    lines = [("Network", "Trained by", "Method", "Cells", *(label(metric) for metric in METRICS))]
    for (model, network, method), cells in groups.items():
        by_metric = {metric: [cell for cell in cells if cell.paper.metric == metric] for metric in METRICS}
        trained = "its authors" if network == "paper's" else "us"
        shown = [_numbers(mean_difference(of)) if of else "–" for of in by_metric.values()]
        lines.append((label(model), trained, label(method), str(len(cells)), *shown))
    return markdown_table(lines)


def arithmetics(results: Sequence[Result]) -> str:
    """Return the mean absolute difference of +pNML by both arithmetics, over the cells that have both."""
    lines = [("Network", "Metric", "Cells", "Ours", "Published")]
    for network, words in NETWORKS.items():
        for metric in METRICS:
            cells = [
                cell
                for cell in _cells(results)
                if (cell.network, cell.paper.metric) == (network, metric) and cell.ours.published is not None
            ]
            if cells:
                mean = mean_difference(cells)
                pair = f"{mean.plus_pnml:.2f}", f"{mean.published:.2f}"
                lines.append((words, label(metric), str(len(cells)), *pair))
    return markdown_table(lines)


def differences(results: Sequence[Result], folder: Path) -> list[Difference]:
    """Return every difference of more than ``LARGE`` points, alone and with pNML, in the order of the tables."""
    experiments: dict[tuple[str, ...], list[dict[str, Any]]] = defaultdict(list)
    for entry in _experiments(folder):
        experiments[tuple(entry[name] for name in ("model", "ind", "ood", "method", "metric"))].append(entry)
    found = []
    for cell in _cells(results):
        pairs = (("alone", cell.paper.alone, cell.ours.alone), ("with pNML", cell.paper.plus_pnml, cell.ours.plus_pnml))
        for kind, paper, ours in pairs:
            if ours is None or abs(ours - paper) <= LARGE:
                continue
            tried = experiments[(*cell.paper.key[:2], cell.ood, cell.paper.method, cell.paper.metric)]
            cause, evidence = _explained(cell, paper, ours, tried if kind == "with pNML" else [])
            found.append(Difference(cell, kind, paper, ours, cause, evidence))
    return found


def _explained(cell: Cell, paper: float, ours: float, tried: list[dict[str, Any]]) -> tuple[str, str]:
    """Return which change brings a number to less than half of its distance from the paper's, and to what."""
    changes = {entry["experiment"]: float(entry["with_change"]) for entry in tried}
    if cell.ours.published is not None and ours == cell.ours.plus_pnml:
        changes["the published arithmetic"] = cell.ours.published
    near = {name: value for name, value in changes.items() if abs(value - paper) < abs(ours - paper) / 2}
    if near:
        best = min(near, key=lambda name: abs(near[name] - paper))
        return best, f"{near[best]:.1f}"
    return TRAINING if cell.network == "retrained" else NOT_KNOWN, ""


def summary_of_differences(results: Sequence[Result], folder: Path) -> str:
    """Return how many differences are large, by network, method and what explains them."""
    by_cause: Counter[tuple[str, str, str]] = Counter()
    for found in differences(results, folder):
        by_cause[label(found.cell.paper.model), label(found.cell.paper.method), found.cause] += 1
    lines = [("Network", "Method", "Numbers", "What brings them to less than half of the distance")]
    lines += [(model, method, str(number), cause) for (model, method, cause), number in sorted(by_cause.items())]
    return markdown_table(lines)


def all_differences(results: Sequence[Result], folder: Path) -> str:
    """Return the page of all large differences."""
    lines = [("Network", "IND", "OOD", "Method", "Metric", "Paper", "Ours", "Difference", "Changed", "Then")]
    for found in differences(results, folder):
        cell, paper = found.cell, found.cell.paper
        names = label(paper.model), label(paper.ind), label(cell.ood), f"{label(paper.method)} {found.kind}"
        numbers = f"{found.paper:.1f}", f"{found.ours:.1f}", f"{found.ours - found.paper:+.1f}"
        lines.append((*names, label(paper.metric), *numbers, found.cause, found.evidence or "–"))
    return (
        f"# Differences of more than {LARGE:.0f} points\n\n"
        f"All {len(lines) - 1} numbers of ours that are farther than that from the paper's, in percent. *Changed* is "
        "what was changed in an experiment, or how +pNML was computed, if it brings the number to less than half of "
        "that distance; *then* is what it came to.\n\n" + markdown_table(lines) + "\n"
    )


def near(results: Sequence[Result]) -> str:
    """Return AUROCs of the paper's form against near sets."""
    lines = [("Network", "IND", "OOD", "Method", "Alone", "With pNML, paper's form")]
    pairs = (("cifar10", "cifar100"), ("cifar100", "cifar10"))
    for one in results:
        if (one.ind, one.ood) in pairs and one.study == "paper" and one.scores and one.scores.plus_pnml:
            numbers = f"{one.scores.method.auroc:.1f}", f"{one.scores.plus_pnml.auroc:.1f}"
            lines.append((label(one.model), label(one.ind), label(one.ood), label(one.method), *numbers))
    return markdown_table(lines)


def trainings(results: Sequence[Result], folder: Path) -> str:
    """Return how the networks were trained that were trained anew, and their accuracies."""
    found = {
        (one.model, one.ind, one.checkpoint): one
        for one in results
        if one.study == RETRAINED_STUDY and one.accuracy is not None and one.checkpoint is not None
    }
    if not found:
        return "*None is measured yet: `studies/paper/run.py` trains and measures them.*"
    lines = [("Weights", "Trained on", "Images", "Epochs", "Seed", "Test accuracy (%)")]
    known = read_trainings(folder)
    for (_, ind, checkpoint), one in sorted(found.items()):
        training, name = known[checkpoint], checkpoint.split(" ")[0].removesuffix(".safetensors")
        how = training["train_images"], training["epochs"], training["seed"]
        lines.append((name, label(ind), f"{int(how[0]):,}", *how[1:], f"{one.accuracy:.2f}"))
    return markdown_table(lines)


def gram_counts(folder: Path) -> str:
    """Return how many samples Gram and Gram+pNML flag, beside the counts that the paper prints."""
    found = json.loads((folder / "gram-vs-pnml.json").read_text(encoding="utf-8"))
    heads = ("", "OOD flagged by pNML only", "OOD flagged by Gram only", "IND flagged with pNML", "IND flagged by Gram")
    lines = [heads, ("paper: LSUN (C), 10,000 and 10,000", "473", "76", "891", "1,205")]
    samples = f"{label(found['ood'])}, {found['samples']['ood']:,} and {found['samples']['ind']:,}"
    for words, one in (
        (f"here: {samples}", found),
        ("at the paper's thresholds", found.get("at_thresholds_of_the_paper")),
    ):
        if one is not None:
            only, refused = one["ood_caught_only_by"], one["ind_refused"]
            numbers = only["plus_pnml"], only["alone"], refused["plus_pnml"], refused["alone"]
            lines.append((words, *(f"{number:,}" for number in numbers)))
    return markdown_table(lines)


def _cells(results: Iterable[Result]) -> list[Cell]:
    return [cell for table in build_tables(Sources(results)) for cell in table.cells]


def _experiments(folder: Path) -> list[dict[str, Any]]:
    files = sorted(folder.glob("differences*.json"))
    return [entry for path in files for entry in json.loads(path.read_text(encoding="utf-8")).get("cells", [])]


def _numbers(numbers: Any) -> str:
    values = [value for value in astuple(numbers) if value is not None]
    return " / ".join(f"{value:.2f}" for value in values)
