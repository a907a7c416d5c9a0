"""Train the networks and keep their embeddings: ``python research/independent/train.py --data data --out embeddings``.

A file for each task, network and seed, in the layout of ``research/embeddings.py``; OOD sets are ``ood/near/NAME`` and
``ood/far/NAME``. One thread. A file that is there already is left alone.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter

import corpora
import numpy as np
import sentences
import torch
from networks import OF_KIND, ONE_SEED
from safetensors.numpy import save_file
from tasks import TASKS, Task


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), help="those alone, or NAME-sentences")
    parser.add_argument("--data", type=Path, required=True, help="the folder that sources.py checks")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--networks", nargs="+", default=[], help="those alone; all when left out")
    args = parser.parse_args()
    torch.set_num_threads(1)
    corpora.DATA = args.data
    args.out.mkdir(parents=True, exist_ok=True)
    every = TASKS | sentences.TASKS
    for name in args.tasks:
        task = every[name]()
        for network in args.networks or OF_KIND[task.kind]:
            for seed in (0,) if network.endswith(ONE_SEED) else (0, 1, 2):
                path = args.out / f"{name}_{network}_{seed}.safetensors"
                if not path.exists():
                    keep(path, task, network, seed)


def keep(path: Path, task: Task, network: str, seed: int) -> None:
    torch.manual_seed(seed)
    began = perf_counter()
    embed, weight, bias = OF_KIND[task.kind][network](task)
    seconds = perf_counter() - began
    sets = {"train": task.train, "test": task.test, **{f"ood/{name}": rows for name, rows in task.oods.items()}}
    held = {name: embed(rows) for name, rows in sets.items()}
    held |= {"weight": weight, "bias": bias}
    held = {name: np.ascontiguousarray(array, np.float32) for name, array in held.items()}
    accuracy = {}
    for part in ("train", "test"):
        labels = getattr(task, f"{part}_labels")
        held[f"{part}_labels"] = labels.astype(np.int64)
        accuracy[part] = 100 * float(((held[part] @ held["weight"].T + held["bias"]).argmax(1) == labels).mean())
    about = {"checkpoint": path.stem, "accuracy": str(accuracy["test"]), "train_accuracy": str(accuracy["train"])}
    save_file(held, path, metadata=about)
    print(f"{path.stem}: accuracy {accuracy['test']:.1f} (train {accuracy['train']:.1f}), {seconds:.0f} s", flush=True)


if __name__ == "__main__":
    main()
