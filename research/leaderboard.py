"""Run pNML and every peer on stored embeddings: ``python research/leaderboard.py FILES --study NAME``.

All methods are fitted on the training rows of a file and scored on its test and OOD rows. The results are added to
research/results, for ``pnml leaderboard --results research/results``. ``pnml bench --method peers`` does the same from
images.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter
from types import SimpleNamespace
from typing import Any

import torch
from safetensors import safe_open
from torch import Tensor, nn

from pnml.metrics import evaluate
from pnml_bench.environment import environment
from pnml_bench.memory import watched_memory
from pnml_bench.methods import ALL_METHODS, GROUPS, MethodFailedError, Outputs, View
from pnml_bench.results import Result, Run, Scores, current_time, start_run
from pnml_bench.store import ResultStore

CPU = torch.device("cpu")


class Stored(View):
    """A view with stored outputs."""

    def __init__(self, network: Any, embeddings: Tensor, labels: Tensor | None = None) -> None:
        super().__init__(network, SimpleNamespace(labels=None if labels is None else labels.numpy()))  # type: ignore[arg-type]
        with torch.inference_mode():
            self.__dict__["outputs"] = Outputs(embeddings, network.head(embeddings))

    def __len__(self) -> int:
        return len(self.embeddings)


class Head(nn.Module):
    """The part of a network that methods on embeddings use."""

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        super().__init__()
        self.head = nn.Linear(weight.shape[1], weight.shape[0])
        self.head.weight.data, self.head.bias.data = weight, bias


def measure(path: Path, study: str, store: ResultStore, run: Run) -> None:
    """Append the results of every method on one file."""
    with safe_open(path, "pt") as file:
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = file.metadata()
    model, ind = path.stem.split("_", 1)
    network = Head(held["weight"], held["bias"]).eval()
    train, test = (Stored(network, held[name], held[f"{name}_labels"]) for name in ("train", "test"))
    oods = {name.removeprefix("ood/"): Stored(network, rows) for name, rows in held.items() if name.startswith("ood/")}
    for name in GROUPS["peers"]:
        try:  # a peer that fails has no result
            method = ALL_METHODS[name]()
            with watched_memory(CPU) as fitting:
                began = perf_counter()
                method.fit(train)
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
                    study=study,
                    checkpoint=Path(about["checkpoint"]).name,
                    scores=Scores(evaluate(inside, outside)),
                    counts={"train": len(train), "ind": len(test), "ood": len(view)},
                    accuracy=float(about["accuracy"]),
                    memory_bytes=fitting.then(scoring),
                    memory_device="cpu",
                    settings={"method": [method.settings]},
                    seconds={"method_fit": fit_seconds, "score": seconds},
                    date=current_time(),
                    run=run,
                )
                store.append(result)
        except MethodFailedError as error:  # noqa: PERF203
            print(f"{path.stem}, {name}: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--study", required=True)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results")
    args = parser.parse_args()
    command = f"python research/leaderboard.py {{model}}_{{ind}}.safetensors --study {args.study}"
    run = start_run(command, f"cpu: {environment()['cpu']}")
    for path in args.files:
        measure(path, args.study, ResultStore(args.out), run)


if __name__ == "__main__":
    main()
