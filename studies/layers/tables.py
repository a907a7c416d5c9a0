"""Write the tables of README.md from the record: ``python -m studies.layers.tables``."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from studies.layers.networks import CHOOSE, CONFIRM, SECOND
from studies.layers.run import ood_sets
from studies.records import replace_table

FOLDER = Path(__file__).parent
PAGE = FOLDER / "README.md"
RECORD = FOLDER / "record.json"
OURS = ("pnml", "pnml-last", "pnml-paper")
AUROC, TNR = 0, 1
Network = dict[str, Any]


def mean(networks: list[Network], method: str, metric: int = AUROC, part: str | None = None) -> float | None:
    """Return the mean over the sets of a network, all or those of one part, and over its seeds."""
    values = [
        fmean(found)
        for network in networks
        if (found := [
            value[metric]
            for name, value in network["auroc_tnr"][method].items()
            if part in {None, ood_sets(network["ind"])[name]}
        ])
    ]  # fmt: skip
    return fmean(values) if values else None


def seeds(record: list[Network]) -> dict[str, list[Network]]:
    """Return the runs of each network, by its name without the seed."""
    found = defaultdict(list)
    for network in record:
        found["_".join(network["network"].split("_")[:2])].append(network)
    return dict(found)


def shown(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:.{digits}f}"


def confidence(networks: list[Network]) -> float | None:
    """Return the near-OOD AUROC of the better of MSP and Energy."""
    both = [mean(networks, method, part="near") for method in ("msp", "energy")]
    return max((value for value in both if value is not None), default=None)


def each_network(found: dict[str, list[Network]]) -> str:
    heads = [
        "network",
        "accuracy",
        "**pnml**",
        "± seeds",
        "pnml-last",
        "best peer",
        "near: pnml",
        "near: MSP or Energy",
    ]
    rows = []
    for name, networks in found.items():
        peers = [method for method in networks[0]["auroc_tnr"] if method not in OURS]
        best = max(peers, key=lambda method: mean(networks, method) or 0.0)
        single = [mean([network], "pnml") or 0.0 for network in networks]
        row = [name.replace("_", ", "), shown(fmean(network["accuracy"] for network in networks))]
        row += [shown(mean(networks, "pnml")), shown(stdev(single) if len(single) > 1 else None)]
        row += [shown(mean(networks, "pnml-last")), f"{shown(mean(networks, best))} {best}"]
        rows.append([*row, shown(mean(networks, "pnml", part="near")), shown(confidence(networks))])
    return grid(heads, rows)


def each_method(found: dict[str, list[Network]]) -> str:
    heads = ["method", "AUROC", "TNR at TPR 95 %", "near", "far", "pnml is above by", "standard error"]
    rows = []
    for method in next(iter(found.values()))[0]["auroc_tnr"]:
        values = [mean(networks, method) or 0.0 for networks in found.values()]
        ahead = [
            (mean(networks, "pnml") or 0.0) - value for networks, value in zip(found.values(), values, strict=True)
        ]
        parts = [[mean(n, method, part=part) for n in found.values()] for part in ("near", "far")]
        row = [method, shown(fmean(values), 2), shown(fmean(mean(n, method, TNR) or 0.0 for n in found.values()))]
        row += [shown(fmean(value for value in part if value is not None), 2) for part in parts]
        error = stdev(ahead) / len(ahead) ** 0.5
        row += ["–", "–"] if method == "pnml" else [shown(fmean(ahead), 2), shown(error, 2)]
        rows.append((-fmean(values), row))
    return grid(heads, [row for _, row in sorted(rows)])


def frozen(record: dict[str, dict[str, list[float]]]) -> str:
    heads = ["task", *next(iter(record.values()))]
    rows = [
        [task, *(f"{all_sets:.1f} ({near:.1f})" for all_sets, near in found.values())] for task, found in record.items()
    ]
    return grid(heads, rows)


def few_rows(networks: dict[str, dict[str, dict[str, float]]]) -> str:
    counts = [count for count in next(iter(networks.values())) if count != "msp"]
    rows = [
        [name.replace("_", ", "), shown(found["msp"]["any"])]
        + [f"{shown(found[count]['pnml'])} / {shown(found[count]['pnml-last'])}" for count in counts]
        for name, found in networks.items()
    ]
    return grid(["network", "MSP", *(f"{int(count):,}" for count in counts)], rows)


def grid(heads: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(row)} |" for row in (heads, ["---"] * len(heads), *rows)) + "\n"


def main() -> None:
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    found = seeds(record["networks"])
    confirm = {name: networks for name, networks in found.items() if name in CONFIRM}
    choose = {name: networks for name, networks in found.items() if name in CHOOSE or name not in CONFIRM}
    replace_table(PAGE, "confirm methods", each_method(confirm))
    replace_table(PAGE, "confirm networks", each_network(confirm))
    replace_table(PAGE, "choose networks", each_network(choose))
    second = seeds(record["second"])
    confirm = {name: networks for name, networks in second.items() if name in SECOND}
    replace_table(PAGE, "second methods", each_method(confirm))
    replace_table(PAGE, "second networks", each_network(second))
    replace_table(PAGE, "frozen", frozen(record["frozen"]))
    replace_table(PAGE, "few rows", few_rows(record["few_rows"]["networks"]))


if __name__ == "__main__":
    main()
