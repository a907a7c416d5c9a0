"""The tables of OpenOOD's CIFAR protocol and of TinyImageNet-200, for the pages."""

from __future__ import annotations

from statistics import fmean
from textwrap import fill
from typing import TYPE_CHECKING

from pnml.report.labels import label
from pnml_bench.layout import markdown_table
from pnml_bench.leaderboard import NEAR
from pnml_bench.methods import LAYER_PEERS
from pnml_bench.ood_data import needs_no_ood_data
from studies.boards import OURS
from studies.photographs.openood import COLUMNS as METRICS
from studies.photographs.openood import SEEDS, board, render, study
from studies.photographs.run import CIFAR, TINY, TINY_FAR, TINY_MODELS, TINY_SEEDS, tiny_study

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml_bench.results import Result
    from studies.photographs.openood import Board, Line

COLUMNS = ("Method", "Needs no OOD data", *METRICS)
STANDINGS = ("networks", "seeds", "pnml", "its place", "best that sees embeddings alone", "best on the same layers")
LAYERS = (False, True)
NOT_YET = "*Not measured yet: `studies/photographs/run.py` measures it.*"


def summary(results: Sequence[Result]) -> str:
    """Return a line for each kind of network: the default's place, and the best methods that need no OOD data."""
    boards = {f"OpenOOD, {label(ind)}": board(ind, found) for ind in CIFAR if (found := _of_openood(results, ind))}
    for model in TINY_MODELS:
        if found := _of_tiny(results, model):
            boards[f"{label(TINY)}, {label(model)}"] = _tiny_board(found)
    lines = [_standing(name, made) for name, made in boards.items()]
    return markdown_table([STANDINGS, *lines]) if lines else NOT_YET


def openood(results: Sequence[Result]) -> str:
    """Return the tables of OpenOOD's protocol, and how many pictures each set has."""
    boards, below, missing = [], [], []
    for ind in CIFAR:
        studies = _of_openood(results, ind)
        if not studies:
            missing.append(f"### {label(ind)}\n\n{NOT_YET}")
            continue
        boards.append(board(ind, studies))
        found = [one for some in studies for one in some]
        below.append(fill(f"{label(ind)}: {_accuracy(found)}; {_pictures(found)}.", 120))
    return "\n\n".join([render(boards).rstrip(), *below, *missing]) if boards else NOT_YET


def tinyimagenet(results: Sequence[Result]) -> str:
    """Return a table for each network on TinyImageNet-200."""
    blocks = []
    for model in TINY_MODELS:
        studies = _of_tiny(results, model)
        blocks.append(f"### {label(model)}")
        if not studies:
            blocks.append(NOT_YET)
            continue
        made = _tiny_board(studies)
        near, far = (", ".join(map(label, sets)) or "none" for sets in (made.near, made.far))
        spread = f"mean and standard deviation over {len(studies)} seeds" if len(studies) > 1 else "one seed"
        found = [one for some in studies for one in some]
        blocks += [
            fill(f"Near: {near}. Far: {far}. In percent, {spread}; {_accuracy(found)}.", 120),
            markdown_table([COLUMNS, *map(_texts, made.lines)]),
            fill(f"Number of {_pictures(found)}.", 120),
        ]
        blocks += ["\n".join(f"- {label(ood)}: {why}" for ood, why in made.absent.items())] if made.absent else []
    return "\n\n".join(blocks)


def _of_openood(results: Sequence[Result], ind: str) -> list[list[Result]]:
    """Return the results of each seed that was measured."""
    every = ([one for one in results if (one.study, one.ind) == (study(seed), ind)] for seed in SEEDS)
    return [found for found in every if found]


def _of_tiny(results: Sequence[Result], model: str) -> list[list[Result]]:
    every = ([one for one in results if (one.study, one.model) == (tiny_study(seed), model)] for seed in TINY_SEEDS)
    return [found for found in every if found]


def _tiny_board(studies: Sequence[Sequence[Result]]) -> Board:
    return board(TINY, studies, near=NEAR[TINY], far=TINY_FAR)


def _standing(name: str, made: Board) -> tuple[str, ...]:
    """Return the means of near and far AUROC of the default and of the best others, and the default's place."""
    means = {line.method: line.figures.mean_auroc for line in made.lines if needs_no_ood_data(line.method)}
    others = [method for method in means if method not in OURS]
    best = [max((one for one in others if (one in LAYER_PEERS) == layers), key=means.__getitem__) for layers in LAYERS]
    place = 1 + sum(means[one] > means["pnml"] for one in others)
    return name, str(made.seeds), f"{means['pnml']:.1f}", str(place), *(f"{means[one]:.1f} ({one})" for one in best)


def _texts(line: Line) -> tuple[str, ...]:
    return line.method, "yes" if needs_no_ood_data(line.method) else "no", *line.figures.texts


def _accuracy(results: Sequence[Result]) -> str:
    by_network = {one.checkpoint: one.accuracy for one in results if one.accuracy is not None}
    return f"test accuracy {fmean(by_network.values()):.1f}%" if by_network else "test accuracy unknown"


def _pictures(results: Sequence[Result]) -> str:
    """Return how many pictures each OOD set has, and what is special about them."""
    sets = {one.ood: one for one in results if one.scores is not None}
    parts = []
    for name, one in sets.items():
        note = one.settings.get("notes", {}).get("ood", "")
        count = f"{one.counts['ood']:,}"
        parts.append(
            f"{label(name)} {note if note.startswith(f'{count} of') else f'{count} ({note})' if note else count}"
        )
    return f"pictures: {', '.join(parts)}"
