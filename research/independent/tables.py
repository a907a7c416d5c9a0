"""The tables of independent.md, from independent.json."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

PAGE = Path(__file__).parent / "independent.md"
AUTO, PAPER = "pnml", "pnml-paper"
OURS = (AUTO, PAPER)
NAMES = {"baseline": "MSP", AUTO: "**pNML, auto**", PAPER: "pNML, paper"}

Scores: TypeAlias = "dict[str, dict[str, float]]"
"""Of each method: near, far and the mean of both, in percent."""


def by_network(networks: dict[str, Any]) -> dict[tuple[str, str], Scores]:
    """Give the scores of every task and network, averaged over seeds; a method that failed once is left out."""
    runs: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for name, run in networks.items():
        task, network, _ = name.split("_")
        runs[task, network].append(run["auroc"])
    found = {}
    for key, of_seed in runs.items():
        methods = [method for method in of_seed[0] if all(method in run for run in of_seed)]
        found[key] = {method: near_and_far([run[method] for run in of_seed]) for method in methods}
    return found


def near_and_far(runs: list[dict[str, float]]) -> dict[str, float]:
    part = {
        kind: float(np.mean([value for run in runs for ood, value in run.items() if ood.startswith(kind)]))
        for kind in ("near", "far")
    }
    return {**part, "mean": (part["near"] + part["far"]) / 2}


def rank(scores: Scores, of: str, method: str = AUTO) -> int:
    """PathOrUri among all methods, 1 is the best; the paper's form does not count against auto."""
    others = [name for name in scores if name not in OURS]
    return 1 + sum(scores[name][of] > scores[method][of] for name in others)


def best_peer(scores: Scores, of: str) -> tuple[str, float]:
    name = max((name for name in scores if name not in OURS), key=lambda name: scores[name][of])
    return name, scores[name][of]


def each_network(found: dict[tuple[str, str], Scores], networks: dict[str, Any]) -> str:
    heads = ["task", "network", "accuracy", "auto: mean", "best peer", "rank", "paper: mean", "near: auto"]
    heads += ["near: MSP, Energy", "near: best peer", "far: auto", "far: paper", "far: best peer"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for (task, network), scores in found.items():
        accuracy = np.mean([run["accuracy"] for name, run in networks.items() if name.startswith(f"{task}_{network}_")])
        best = {of: best_peer(scores, of) for of in ("mean", "near", "far")}
        shown = {of: f"{value:.1f} {NAMES.get(name, name)}" for of, (name, value) in best.items()}
        auto, paper = scores[AUTO], scores[PAPER]
        mean = f"**{auto['mean']:.1f}**" if rank(scores, "mean") == 1 else f"{auto['mean']:.1f}"
        confidence = f"{scores['baseline']['near']:.1f}, {scores['energy']['near']:.1f}"
        lines.append(
            f"| {task} | {network} | {accuracy:.1f} | {mean} | {shown['mean']} | {rank(scores, 'mean')} "
            f"| {paper['mean']:.1f} | {auto['near']:.1f} | {confidence} | {shown['near']} "
            f"| {auto['far']:.1f} | {paper['far']:.1f} | {shown['far']} |"
        )
    return "\n".join(lines) + "\n"


def each_method(found: dict[tuple[str, str], Scores]) -> str:
    """The mean over the networks of every task, then over tasks: no task counts for more than another."""
    tasks = list(dict.fromkeys(task for task, _ in found))
    methods = list(dict.fromkeys(method for scores in found.values() for method in scores))

    def mean(method: str, of: str, task: str) -> float:
        values = [scores[method][of] for (name, _), scores in found.items() if name == task and method in scores]
        return float(np.mean(values)) if values else float("nan")

    rows = []
    for method in methods:
        total = {of: float(np.nanmean([mean(method, of, task) for task in tasks])) for of in ("near", "far", "mean")}
        places = [
            1 + sum(other["mean"] > s[method]["mean"] for other in s.values()) for s in found.values() if method in s
        ]
        missing = len(found) - len(places)
        cells = [f"{mean(method, 'mean', task):.1f}" for task in tasks]
        note = f" (fails on {missing})" if missing else ""
        rows.append(
            (
                -total["mean"],
                [
                    NAMES.get(method, method) + note,
                    *(f"{total[of]:.1f}" for of in total),
                    f"{np.mean(places):.1f}",
                    f"{sum(p == 1 for p in places)}",
                    *cells,
                ],
            )
        )
    heads = ["method", "near", "far", "mean", "mean rank", "first", *tasks]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    lines += ["| " + " | ".join(cells) + " |" for _, cells in sorted(rows)]
    return "\n".join(lines) + "\n"


def write(networks: dict[str, Any]) -> None:
    found = by_network(networks)
    text = PAGE.read_text(encoding="utf-8")
    for mark, table in (("methods", each_method(found)), ("networks", each_network(found, networks))):
        before, _, rest = text.partition(f"<!-- {mark} -->\n")
        _, _, after = rest.partition(f"<!-- end of {mark} -->")
        text = f"{before}<!-- {mark} -->\n{table}<!-- end of {mark} -->{after}"
    PAGE.write_text(text, encoding="utf-8")
