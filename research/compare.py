"""Run every candidate on every network: ``python research/compare.py embeddings/*.safetensors``.

Writes research/near-ood.json and the table of research/near-ood.md.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from candidates import CANDIDATES
from study import Study

from pnml.bench.leaderboard import NEAR
from pnml.metrics import auroc
from pnml.report.labels import label

HERE = Path(__file__).parent
CHOSEN_ON = ("densenet-bc-100_cifar10", "densenet-bc-100_cifar100")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="+", type=Path)
    files = sorted(parser.parse_args().files, key=lambda path: (path.stem not in CHOSEN_ON, path.stem))
    found: dict[str, dict[str, dict[str, float]]] = {}
    for path in files:
        study = Study(path)
        for family, members in CANDIDATES.items():
            for name, candidate in members.items():
                score = candidate(study)
                inside = score(study.test)
                found.setdefault(f"{family}: {name}", {})[study.name] = {
                    ood: auroc(inside, score(rows)) for ood, rows in study.oods.items()
                }
        print(path.stem, flush=True)
    (HERE / "near-ood.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    page = HERE / "near-ood.md"
    before, _, rest = page.read_text(encoding="utf-8").partition("<!-- table -->\n")
    _, _, after = rest.partition("<!-- end of table -->")
    page.write_text(f"{before}<!-- table -->\n{table(found)}<!-- end of table -->{after}", encoding="utf-8")


def table(found: dict[str, dict[str, dict[str, float]]]) -> str:
    networks = list(next(iter(found.values())))
    heads = [" ".join(label(part) for part in name.split("_")) for name in networks]
    lines = ["| | " + " | ".join(heads) + " |", "|---" * (len(heads) + 1) + "|"]
    family = ""
    for name, of_network in found.items():
        group, _, short = name.partition(": ")
        if group != family:
            family = group
            lines.append(f"| **{group}** |" + " |" * len(heads))
        lines.append(f"| {short} | " + " | ".join(cell(network, of_network[network]) for network in networks) + " |")
    return "\n".join(lines) + "\n"


def cell(network: str, aurocs: dict[str, float]) -> str:
    near = NEAR.get(network.split("_")[1], ())
    mean = np.mean(list(aurocs.values()))
    return f"{mean:.1f} ({aurocs[near[0]]:.1f})" if near else f"{mean:.1f}"


if __name__ == "__main__":
    main()
