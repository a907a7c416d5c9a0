"""Write the tables of confirm.md, and every board: ``python research/confirm_tables.py --results results/confirm``."""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import confirm_sets  # noqa: F401  # says what is near to a half of CIFAR-10

from pnml.backend.files import atomic_path
from pnml.bench.leaderboard import leaderboard, render_leaderboard
from pnml.bench.results import load_results
from pnml.report.labels import label

if TYPE_CHECKING:
    from pnml.bench.leaderboard import Board, Standing

PAGE = Path(__file__).parent / "confirm.md"
AUTO, PAPER = "pnml", "pnml-paper"
NAMES = {"baseline": "MSP", AUTO: "**pNML, auto**", PAPER: "pNML, paper", "pytorch-ood-pnml": "its PNML"}
CONFIDENCE = ("baseline", "energy")
PARTS = ("near", "far", "overall")


def shown(standing: Standing, part: str) -> str:
    value = getattr(standing, part)
    return "–" if value is None else f"{value:.1f}"


def best(standings: list[Standing], part: str) -> str:
    """Give the highest mean and whose it is."""
    there = [standing for standing in standings if getattr(standing, part) is not None]
    if not there:
        return "–"
    first = max(there, key=lambda standing: getattr(standing, part))
    return f"{shown(first, part)} {NAMES.get(first.method, first.method)}"


def place(board: Board, method: str) -> int | None:
    """Give the place by the mean over all sets, 1 for the best; a method that failed has none."""
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
    """The mean over the networks on which a method did not fail, and that of auto on the same ones, best first."""
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
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--results", type=Path, default=Path("results/confirm"))
    parser.add_argument("--page", type=Path, default=PAGE, help="the page whose marked tables are replaced")
    parser.add_argument("--boards", type=Path, help="write every method on every network to this Markdown file too")
    args = parser.parse_args()
    results = load_results(args.results)
    boards = leaderboard(results)
    accuracy = {f"{label(result.model)}, {label(result.ind)}": result.settings["accuracy"] for result in results}
    text = args.page.read_text(encoding="utf-8")
    for mark, table in (("networks", each_network(boards, accuracy)), ("methods", each_method(boards))):
        before, _, rest = text.partition(f"<!-- {mark} -->\n")
        _, _, after = rest.partition(f"<!-- end of {mark} -->")
        text = f"{before}<!-- {mark} -->\n{table}<!-- end of {mark} -->{after}"
    args.page.write_text(text, encoding="utf-8")
    if args.boards:
        with atomic_path(args.boards) as fresh:
            fresh.write_text(render_leaderboard(boards), encoding="utf-8")


if __name__ == "__main__":
    main()
