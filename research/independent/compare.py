"""Score every method on every stored network: ``PYTHONPATH=research python research/independent/compare.py FILES``.

Writes independent.json and the tables of independent.md. Networks that the JSON holds already are not run again;
``--again NAME`` adds what "auto" has on each by now, under that name, and touches nothing else: "repaired" since the
bias shrinks along, "noisy" since it allows for label noise.
"""

from __future__ import annotations

import argparse
import json
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import tables
import torch
from leaderboard import Head, Stored
from safetensors import safe_open

from pnml import Detector
from pnml.bench.methods import ALL_METHODS, GROUPS, MethodFailedError
from pnml.bench.results import environment
from pnml.metrics import auroc

if TYPE_CHECKING:
    from collections.abc import Sequence

RESULTS = Path(__file__).parent / "independent.json"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path)
    parser.add_argument("--again", metavar="NAME")
    args = parser.parse_args()
    files = args.files
    torch.set_num_threads(1)
    held: dict[str, Any] = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"networks": {}}
    for path in files if args.again else ():
        held["networks"][path.stem][args.again] = measure(path, ("pnml",))["auroc"]["pnml"]
    for path in files:
        if path.stem not in held["networks"]:
            held["networks"][path.stem] = measure(path)
            held |= {
                "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
                "command": f"python research/independent/compare.py {path.parent.name}/*.safetensors",
                "versions": environment(),
            }
            RESULTS.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
            print(path.stem, flush=True)
    RESULTS.write_text(json.dumps(held, indent=1) + "\n", encoding="utf-8")
    tables.write(held["networks"])


def measure(path: Path, methods: Sequence[str] = GROUPS["peers"]) -> dict[str, Any]:
    """AUROC of every method and OOD set, in percent, with what explains it."""
    with safe_open(path, "pt") as file:
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = file.metadata()
    network = Head(held["weight"], held["bias"]).eval()
    train, test = (Stored(network, held[name], held[f"{name}_labels"]) for name in ("train", "test"))
    oods = {name.removeprefix("ood/"): Stored(network, rows) for name, rows in held.items() if name.startswith("ood/")}
    detector = Detector(held["weight"], held["bias"]).fit(held["train"])
    found: dict[str, Any] = {
        "accuracy": float(about["accuracy"]),
        "train_accuracy": float(about["train_accuracy"]),
        "rows": len(train),
        "features": detector.n_features,
        "rank": detector.subspace.rank,
        "classes": detector.n_classes,
        "mean_norm": float(np.linalg.norm(held["train"].numpy(), axis=1).mean()),
        "length": detector.embedding_length,
        "auroc": {},
        "failed": {},
    }
    for name in methods:
        try:
            method = ALL_METHODS[name]()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                method.fit(train, detector)
                inside = method.score(test)
                found["auroc"][name] = {ood: auroc(inside, method.score(view)) for ood, view in oods.items()}
        except MethodFailedError as error:  # noqa: PERF203
            found["failed"][name] = str(error).partition(" of namespace")[0]
    return found


if __name__ == "__main__":
    main()
