"""Write what forms of the guard are made of for MLPs on made tables of 54 standardised columns.

python studies/guard-form/tables.py --out FOLDER
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from leverages import Rows, collect
from sklearn.datasets import make_classification
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

TRAIN, TEST = 20_000, 1500


def table(seed: int, *, correlated: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and seven classes: blobs on a hypercube, or mixed columns of which some are binary, like covtype."""
    x, y = make_classification(
        TRAIN + TEST,
        54,
        n_informative=20,
        n_redundant=10,
        n_classes=7,
        n_clusters_per_class=2,
        class_sep=1.5,
        random_state=seed,
    )
    if correlated:
        x = np.concatenate([np.exp(0.5 * x[:, :10]), x[:, 10:] > np.quantile(x[:, 10:], 0.8, axis=0)], axis=1)
    return (x - x[:TRAIN].mean(axis=0)) / x[:TRAIN].std(axis=0), y


def changes(x: np.ndarray, rng: np.random.Generator) -> dict[str, np.ndarray]:
    one = x.copy()
    one[np.arange(len(x)), rng.integers(0, x.shape[1], len(x))] += 10
    shifts = {f"far/plus-{shift}": x + shift for shift in (1, 3, 10)}
    scales = {f"far/times-{factor:g}": x * factor for factor in (5, 100, 0.01)}
    return shifts | scales | {"far/one-column": one, "far/noise": rng.normal(size=x.shape)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, correlated in (("table-blobs", False), ("table-mixed", True)):
        torch.manual_seed(0)
        x, y = table(0, correlated=correlated)
        first, second, head = nn.Linear(54, 128), nn.Linear(128, 64), nn.Linear(64, 7)
        parameters = [p for layer in (first, second, head) for p in layer.parameters()]
        optimiser = torch.optim.Adam(parameters, lr=1e-3)
        rows, labels = torch.tensor(x[:TRAIN], dtype=torch.float32), torch.tensor(y[:TRAIN])
        for _ in range(15):
            for batch in torch.split(torch.randperm(TRAIN), 128):
                optimiser.zero_grad()
                cross_entropy(head(second(first(rows[batch]).relu()).relu()), labels[batch]).backward()  # type: ignore[no-untyped-call]
                optimiser.step()

        def run(inputs: Tensor, first: nn.Linear = first, second: nn.Linear = second, head: nn.Linear = head) -> Rows:
            hidden = first(inputs).relu()
            embeddings = second(hidden).relu()
            return Rows(embeddings, head(embeddings), [inputs, hidden])

        groups = {"known": x[TRAIN:]} | changes(x[TRAIN:], np.random.default_rng(0))
        with torch.no_grad():
            new = run(torch.tensor(np.concatenate(list(groups.values())), dtype=torch.float32))
            answer = collect(run(rows), new, head.weight, head.bias, [0, 1], input_layer=True)
        accuracy = 100 * float((new.logits[:TEST].argmax(dim=1).numpy() == y[TRAIN:]).mean())
        answer["accuracy"] = np.array(accuracy)
        answer["groups"], answer["sizes"] = np.array(list(groups)), np.array([len(g) for g in groups.values()])
        np.savez_compressed(out / f"{name}.npz", **answer)  # type: ignore[arg-type]
        print(f"{name}: accuracy {accuracy:.1f}", flush=True)


if __name__ == "__main__":
    main()
