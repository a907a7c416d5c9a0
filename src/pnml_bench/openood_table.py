"""Boards of OpenOOD's protocol as Markdown, beside the figures that OpenOOD published.

Two tables for each in-distribution set: the methods that were measured, each beside its published figures, and the
published methods that were not, with the regret among them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml.report.labels import label
from pnml_bench.layout import markdown_table
from pnml_bench.ood_data import needs_no_ood_data
from pnml_bench.openood import SEEDS
from pnml_bench.openood_figures import Figures
from pnml_bench.openood_published import NAMES, published

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml_bench.openood import Board, Line

METRICS = ("Near AUROC", "Far AUROC", "Near FPR@95", "Far FPR@95")
MEASURED_COLUMNS = ("Method", "Needs no OOD data", *(name for metric in METRICS for name in (metric, "published")))
PUBLISHED_COLUMNS = ("Method", "Chosen on OOD data", *METRICS)

_TUNED = "§"
_LEGEND = f"""\
- In brackets: the method's name in OpenOOD. {_TUNED} OpenOOD chose a value of it on OOD validation pictures; here
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
        name += f" ({theirs.method}{' ' + _TUNED if theirs.tuned else ''})"
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
