"""Write the tables of confirm.md from the study ``confirm`` of research/results: ``python research/confirm.py``.

The networks are trained by ``image_networks.py confirm`` and scored by ``leaderboard.py --study confirm``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

from records import replace_table

from pnml.report.labels import label
from pnml_bench.leaderboard import leaderboard
from pnml_bench.store import load_study

if TYPE_CHECKING:
    from pnml_bench.leaderboard import Board, Standing

PAGE = Path(__file__).parent / "confirm.md"
AUTO, PAPER = "pnml", "pnml-paper"
NAMES = {"baseline": "MSP", AUTO: "**pNML, auto**", PAPER: "pNML, paper", "pytorch-ood-pnml": "pytorch-ood PNML"}
CONFIDENCE = ("baseline", "energy")
PARTS = ("near", "far", "overall")


def shown(standing: Standing, part: str) -> str:
    value = getattr(standing, part)
    return "–" if value is None else f"{value:.1f}"


def best(standings: list[Standing], part: str) -> str:
    """Return the highest mean and the method that has it."""
    there = [standing for standing in standings if getattr(standing, part) is not None]
    if not there:
        return "–"
    first = max(there, key=lambda standing: getattr(standing, part))
    return f"{shown(first, part)} {NAMES.get(first.method, first.method)}"


def place(board: Board, method: str) -> int | None:
    """Return the place by the mean over all sets, 1 for the best; None for a method that failed."""
    means = {standing.method: standing.overall for standing in board.standings if standing.overall is not None}
    return 1 + sum(mean > means[method] for mean in means.values()) if method in means else None


def each_network(boards: list[Board], accuracy: dict[str, float]) -> str:
    heads = ["network", "test accuracy", "**pNML, auto**", "best peer", "place", "pNML, paper", "near: auto"]
    heads += ["near: better of MSP and Energy", "near: best peer", "far: auto", "far: paper", "far: best peer"]
    rows = []
    for board in boards:
        of = {standing.method: standing for standing in board.standings}
        auto, paper, peers = of[AUTO], of[PAPER], [of[method] for method in of if method not in {AUTO, PAPER}]
        row = [board.title, f"{accuracy[board.title]:.1f}", shown(auto, "overall"), best(peers, "overall")]
        row += [str(place(board, AUTO)), shown(paper, "overall"), shown(auto, "near")]
        row += [best([of[method] for method in CONFIDENCE], "near"), best(peers, "near")]
        rows.append([*row, shown(auto, "far"), shown(paper, "far"), best(peers, "far")])
    return f"{grid(heads, rows)}\n{near_mean(boards)}\n"


def near_mean(boards: list[Board]) -> str:
    near = [{standing.method: standing.near or 0.0 for standing in board.standings} for board in boards if board.near]
    auto, confidence = (fmean(max(of[name] for name in names) for of in near) for names in ((AUTO,), CONFIDENCE))
    return f"Near, mean over {len(near)} networks: auto {auto:.2f}, the better of MSP and Energy {confidence:.2f}."


def each_method(boards: list[Board]) -> str:
    """Return the mean over the networks on which a method did not fail, and that of auto on the same, best first."""
    auto = {board.title: s.overall for board in boards for s in board.standings if s.method == AUTO and s.overall}
    rows = []
    for method in {standing.method for board in boards for standing in board.standings}:
        standings = [standing for board in boards for standing in board.standings if standing.method == method]
        values = [[getattr(s, part) for s in standings if getattr(s, part) is not None] for part in PARTS]
        places = {board.title: found for board in boards if (found := place(board, method)) is not None}
        failed = f" (fails on {len(boards) - len(places)})" if len(places) < len(boards) else ""
        values += [[auto[title] for title in places], list(places.values())]
        means = [f"{fmean(of_part):.2f}" if of_part else "–" for of_part in values]
        first = str(list(places.values()).count(1))
        order = -fmean(values[2]) if values[2] else 0.0
        rows.append((order, [NAMES.get(method, method) + failed, *means, first]))
    heads = ["method", "near", "far", "all", "auto on the same networks", "mean place", "first"]
    return grid(heads, [row for _, row in sorted(rows)])


def grid(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path(__file__).parent / "results")
    results = load_study(parser.parse_args().results, "confirm")
    boards = leaderboard(results)
    accuracy = {f"{label(result.model)}, {label(result.ind)}": result.accuracy or 0.0 for result in results}
    replace_table(PAGE, "networks", each_network(boards, accuracy))
    replace_table(PAGE, "methods", each_method(boards))


if __name__ == "__main__":
    main()
