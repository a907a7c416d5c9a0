"""The numbers of the default beside other detectors, for the pages."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from textwrap import fill
from typing import TYPE_CHECKING, Any

from pnml.report.labels import label
from pnml_bench.layout import markdown_table
from pnml_bench.leaderboard import NEAR, leaderboard, render_leaderboard
from pnml_bench.methods import LAYER_PEERS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml_bench.leaderboard import Board, Standing
    from pnml_bench.results import Result

STUDY = "peers-2026-11"
"""Today's default beside its peers, on the paper's networks and on those trained anew."""

OURS = ("pnml", "pnml-last", "pnml-paper", "pnml-published")
SECOND = Path(__file__).parent / "layers" / "record.json"
STRANGERS = Path(__file__).parent / "strangers" / "record.json"
NOT_YET = "*Not measured yet: `studies/paper/run.py` measures it.*"
Network = dict[str, Any]


def _boards(results: Sequence[Result]) -> list[Board]:
    return leaderboard([one for one in results if one.study == STUDY])


def leaderboards(results: Sequence[Result]) -> str:
    """Return the page of all boards."""
    if not _boards(results):
        return f"# Every method on every network\n\n{NOT_YET}\n"
    title = f"# Every method on every network\n\nWritten by `pnml leaderboard --study {STUDY}`.\n\n"
    return title + render_leaderboard(_boards(results))


def table(results: Sequence[Result]) -> str:
    """Return a line for each network: today's default, the best peers, and the default without earlier layers."""
    heads = ("network", "accuracy", "pnml", "best peer", "best on layers", "MSP", "pnml-last", "paper's form")
    accuracy = {f"{label(one.model)}, {label(one.ind)}": one.accuracy for one in results if one.study == STUDY}
    lines, means = [heads], []
    if not _boards(results):
        return NOT_YET
    for board in _boards(results):
        by_method = {one.method: one.overall for one in board.standings}
        chosen = [by_method.get(name) for name in ("pnml", "baseline", "pnml-last", "pnml-paper")]
        single, layers = (_best(board, layers=layers) for layers in (False, True))
        ours, msp, last, paper = map(_shown, chosen)
        name = _network(board)
        leaders = _bold([ours, _named(single), _named(layers)])
        lines.append((name, _shown(accuracy[name]), *leaders, msp, last, paper))
        means.append([chosen[0], single and single.overall, layers and layers.overall, *chosen[1:]])
    columns = [[value for value in column if value is not None] for column in zip(*means, strict=True)]
    lines.append((f"mean of {len(means)} ± standard error", "", *(_mean(column) for column in columns)))
    return markdown_table(lines)


def words(results: Sequence[Result]) -> str:
    """Return how often and by how much the default leads."""
    boards = _boards(results)
    if not boards:
        return NOT_YET
    gains: dict[bool, list[float]] = {False: [], True: []}
    for board in boards:
        ours = next(one.overall for one in board.standings if one.method == "pnml")
        for layers, found in gains.items():
            best = _best(board, layers=layers)
            if ours is not None and best is not None and best.overall is not None:
                found.append(ours - best.overall)
    first, also = (sum(gain > 0 for gain in found) for found in gains.values())
    ahead, beside = map(_lead, gains.values())
    text = (
        f"The default leads the best peer *of that network* that sees embeddings alone on {first} of {len(boards)} "
        f"networks; it is {ahead} it on average (± standard error over networks)."
    )
    if gains[True]:
        text += f" It leads the best that sees the same layers on {also}, and is {beside} it on average."
    return fill(text, 120)


def near_and_far(results: Sequence[Result]) -> str:
    """Return AUROCs on near and far sets: today's default, without earlier layers, the paper's form, MSP or Energy."""
    if not _boards(results):
        return NOT_YET
    heads = ("network", "near: pnml", "near: last", "near: paper", "near: MSP or Energy")
    lines = [(*heads, "far: pnml", "far: last", "far: paper", "far: MSP or Energy")]
    for board in _boards(results):
        by_method = {one.method: one for one in board.standings}
        row = [_network(board)]
        for part in ("near", "far"):
            values = [getattr(by_method.get(name), part, None) for name in ("pnml", "pnml-last", "pnml-paper")]
            both = [getattr(by_method[name], part) for name in ("baseline", "energy")]
            confident = max((value for value in both if value is not None), default=None)
            row += _bold([*map(_shown, values), _shown(confident)])
        lines.append(tuple(row))
    return markdown_table(lines)


def second() -> dict[str, list[Network]]:
    """Return the runs of each network that was trained to test today's default, by name without the seed."""
    found = defaultdict(list)
    for network in json.loads(SECOND.read_text(encoding="utf-8"))["second"]:
        found["_".join(network["network"].split("_")[:2])].append(network)
    return dict(found)


def second_words() -> str:
    """Return the mean of the networks that were trained to test the default, and what it is above."""
    trained = {name: runs for name, runs in second().items() if not name.startswith("densenet-bc-100")}
    return fill(f"**{len(trained)} networks trained to test it**, three seeds each: {_lead_words(trained)}", 120)


def strangers() -> dict[str, list[Network]]:
    """Return the run of each network that others trained, by name and training set."""
    runs = json.loads(STRANGERS.read_text(encoding="utf-8"))
    return {f"{run['network'].replace('_', '-')}_{run['ind']}": [run] for run in runs}


def stranger_words() -> str:
    """Return the mean of the networks that others trained, and what it is above."""
    found = strangers()
    words = f"**{len(found)} networks that others trained and published**: {_lead_words(found)} {_part_words(found)}"
    return fill(words, 120)


def _lead_words(networks: dict[str, list[Network]]) -> str:
    methods = next(iter(networks.values()))[0]["auroc_tnr"]
    means = {method: [_auroc(runs, method) for runs in networks.values()] for method in methods}
    peers = [method for method in methods if method not in OURS]
    single = max((one for one in peers if one not in LAYER_PEERS), key=lambda one: fmean(means[one]))
    layers = max((one for one in peers if one in LAYER_PEERS), key=lambda one: fmean(means[one]))
    ahead = {one: [a - b for a, b in zip(means["pnml"], means[one], strict=True)] for one in (single, layers)}
    above, beside = (_lead(ahead[one]) for one in (single, layers))
    return (
        f"the mean AUROC over near and far sets is {_mean(means['pnml'])} (± standard error over networks). That is "
        f"{above} the best peer that sees embeddings alone, {single}, and {beside} the best that sees the same layers, "
        f"{layers}."
    )


def _part_words(networks: dict[str, list[Network]]) -> str:
    """Return on how many networks the default is first, and how it does on near sets."""
    first, alone, gains = 0, 0, []
    for runs in networks.values():
        peers = [method for method in runs[0]["auroc_tnr"] if method not in OURS]
        ours, others = _auroc(runs, "pnml"), {one: _auroc(runs, one) for one in peers}
        first += ours > max(others.values())
        alone += ours > max(auroc for one, auroc in others.items() if one not in LAYER_PEERS)
        gain = _near_gain(runs)
        gains += [] if gain is None else [gain]
    return (
        f"It leads the best of those that see embeddings alone, whichever that is, on {alone} of {len(networks)}, and "
        f"all peers on {first}. On near sets it is {_lead(gains)} the better of MSP and Energy, and {-min(gains):.1f} "
        "points below at worst."
    )


def _near_gain(runs: list[Network]) -> float | None:
    """Return by how much near-OOD is above the better of MSP and Energy; None without a near set."""
    near = [part for part in NEAR.get(runs[0]["ind"], ()) if part in runs[0]["auroc_tnr"]["pnml"]]
    if not near:
        return None
    return _auroc(runs, "pnml", near) - max(_auroc(runs, one, near) for one in ("msp", "energy"))


def tested_table(networks: dict[str, list[Network]]) -> str:
    """Return a line for each network of a study that tested today's default."""
    lines = [("network", "accuracy", "pnml", "best peer", "best on layers", "MSP", "pnml-last", "paper's form")]
    for name, runs in networks.items():
        peers = [method for method in runs[0]["auroc_tnr"] if method not in OURS]
        best = [
            max((one for one in peers if (one in LAYER_PEERS) == layers), key=lambda one: _auroc(runs, one))
            for layers in (False, True)
        ]
        chosen = [f"{_auroc(runs, one):.1f} ({one})" for one in best]
        others = [f"{_auroc(runs, one):.1f}" for one in ("msp", "pnml-last", "pnml-paper")]
        accuracy = fmean(run["accuracy"] for run in runs)
        leaders = _bold([f"{_auroc(runs, 'pnml'):.1f}", *chosen])
        lines.append((name.replace("_", ", "), f"{accuracy:.1f}", *leaders, *others))
    return markdown_table(lines)


def weak(networks: dict[str, list[Network]]) -> str:
    """Return the networks of a study on which a peer is ahead by more than a point, or near-OOD falls behind."""
    found = []
    for name, runs in networks.items():
        peers = [method for method in runs[0]["auroc_tnr"] if method not in OURS]
        best = max(peers, key=lambda one: _auroc(runs, one))
        behind = _auroc(runs, best) - _auroc(runs, "pnml")
        if behind > 1:
            found.append(f"- {name.replace('_', ', ')}: {best} is ahead by {behind:.1f} points.")
        gain = _near_gain(runs)
        if gain is not None and gain < -1:
            found.append(f"- {name.replace('_', ', ')}, near-OOD: MSP or Energy is ahead by {-gain:.1f} points.")
    return "\n".join(found)


def _auroc(runs: list[Network], method: str, sets: Sequence[str] | None = None) -> float:
    """Return the mean over the sets of a network and over its seeds."""
    return fmean(fmean(run["auroc_tnr"][method][name][0] for name in sets or run["auroc_tnr"][method]) for run in runs)


def _bold(texts: list[str]) -> list[str]:
    """Mark the texts that begin with the largest number."""
    numbers = [float(text.split(" ")[0]) if text != "–" else 0.0 for text in texts]
    return [f"**{text}**" if number == max(numbers) > 0 else text for text, number in zip(texts, numbers, strict=True)]


def _network(board: Board) -> str:
    """Return the name of a board's network without that of its weights."""
    return ", ".join(board.title.split(", ")[:2])


def _best(board: Board, *, layers: bool) -> Standing | None:
    peers = [one for one in board.standings if one.method not in OURS and (one.method in LAYER_PEERS) == layers]
    return max((one for one in peers if one.overall is not None), key=lambda one: one.overall or 0.0, default=None)


def _named(standing: Standing | None) -> str:
    return "–" if standing is None else f"{_shown(standing.overall)} ({label(standing.method)})"


def _shown(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _mean(values: Sequence[float]) -> str:
    """Return a mean with its standard error."""
    if not values:
        return "–"
    error = f" ± {stdev(values) / len(values) ** 0.5:.1f}" if len(values) > 1 else ""
    return f"{fmean(values):.1f}{error}"


def _lead(gains: Sequence[float]) -> str:
    """Return a mean gain in words."""
    size = _mean([gain if fmean(gains) >= 0 else -gain for gain in gains]) if gains else "–"
    return f"{size} points {'above' if gains and fmean(gains) >= 0 else 'below'}"
