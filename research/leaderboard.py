"""Ours and every peer on stored embeddings of networks: ``python research/leaderboard.py embeddings/*.safetensors``.

All methods are fitted on the same training rows, those of the file, and scored on its test and OOD rows; the results
are cells of the benchmark, for ``pnml leaderboard --results results/other``. With the images and the network at
hand, ``pnml bench --method peers`` does the same on whole sets.
"""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from pnml import Detector
from pnml.bench.memory import watched_memory
from pnml.bench.methods import ALL_METHODS, GROUPS, MethodFailedError, Outputs, View
from pnml.bench.results import Result, Scores, environment, save_result
from pnml.metrics import evaluate

CPU = torch.device("cpu")


class Stored(View):
    """A view whose outputs are known already."""

    def __init__(self, network: Any, embeddings: Tensor, labels: Tensor | None = None) -> None:
        super().__init__(network, SimpleNamespace(labels=None if labels is None else labels.numpy()))  # type: ignore[arg-type]
        with torch.inference_mode():
            self.__dict__["outputs"] = Outputs(embeddings, network.head(embeddings))

    def __len__(self) -> int:
        return len(self.embeddings)


class Head(nn.Module):
    """As much of a network as methods on embeddings need."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.head = nn.Linear(weight.shape[1], weight.shape[0])
        self.head.weight.data, self.head.bias.data = weight, bias


def run(path: Path, out: Path) -> None:
    with safe_open(path, "pt") as file:
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = file.metadata()
    model, ind = path.stem.split("_", 1)
    network = Head(held["weight"], held["bias"]).eval()
    train, test = (Stored(network, held[name], held[f"{name}_labels"]) for name in ("train", "test"))
    oods = {name.removeprefix("ood/"): Stored(network, rows) for name, rows in held.items() if name.startswith("ood/")}
    unused = Detector(held["weight"], held["bias"], embedding_scale="paper").fit(held["train"])
    for name in GROUPS["peers"]:
        try:  # a peer that fails leaves its place empty
            method = ALL_METHODS[name]()
            with watched_memory(CPU) as fitting:
                began = perf_counter()
                method.fit(train, unused)
                fit_seconds = perf_counter() - began
            inside = method.score(test)
            for ood, view in oods.items():
                with watched_memory(CPU) as scoring:
                    began = perf_counter()
                    outside = method.score(view)
                    method.score(test)
                    seconds = perf_counter() - began
                result = Result(
                    model=model,
                    ind=ind,
                    ood=ood,
                    method=name,
                    checkpoint=Path(about["checkpoint"]).name,
                    scores=Scores(evaluate(inside, outside)),
                    counts={"train": len(train), "ind": len(test), "ood": len(view)},
                    settings={
                        "method": [method.settings],
                        "memory": {"bytes": fitting.then(scoring), "on": "cpu"},
                        "accuracy": float(about["accuracy"]),
                    },
                    seconds={"method_fit": fit_seconds, "score": seconds},
                    command=f"python research/leaderboard.py {path.name}",
                    versions=environment(),
                    device=f"cpu: {environment()['cpu']}",
                    date=datetime.now(timezone.utc).isoformat(timespec="seconds"),
                )
                save_result(result, out)
        except MethodFailedError as error:  # noqa: PERF203
            print(f"{path.stem}, {name}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path, default=Path("results/other"))
    args = parser.parse_args()
    for path in args.files:
        run(path, args.out)


if __name__ == "__main__":
    main()
