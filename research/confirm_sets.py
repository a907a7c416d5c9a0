"""Half of the classes of CIFAR-10: ``cifar10-even`` to train on, ``cifar10-odd`` as its near-OOD set.

Importing this adds them to the tables of sets, as if they were published so. Even are airplane, bird, deer, frog and
ship; odd are automobile, cat, dog, horse and truck.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from embeddings import OOD

from pnml.bench.data import SETS, load
from pnml.bench.data.selection import Contents
from pnml.bench.data.source import Source
from pnml.bench.leaderboard import NEAR
from pnml.bench.training import DATASETS

if TYPE_CHECKING:
    from pnml.bench.data.selection import Selection


def half(name: str, remainder: int) -> Source:
    """Describe the classes with this remainder when halved, numbered anew from 0."""

    def generate(selection: Selection) -> Contents:
        whole = load("cifar10", split=selection.split)
        if whole.labels is None:
            raise ValueError("the images of CIFAR-10 have no labels: their classes cannot be told apart")
        rows = np.flatnonzero(whole.labels % 2 == remainder)
        chosen = rows[selection.rows(len(rows))]
        return Contents(whole.images[chosen], whole.labels[chosen] // 2, len(rows))

    return Source(
        name, f"CIFAR-10, every second class from {remainder}", {"train": 25_000, "test": 5_000}, generate=generate
    )


SETS |= {"cifar10-even": half("cifar10-even", 0), "cifar10-odd": half("cifar10-odd", 1)}
DATASETS["cifar10-even"] = 5
OOD["cifar10-even"] = ("cifar10-odd", *OOD["cifar10"][1:])
NEAR["cifar10-even"] = ("cifar10-odd",)
