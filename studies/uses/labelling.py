"""Active learning, simulated: the part of studies/uses/run.py that asks for labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

from pnml.backend.progress import track
from pnml.uses import acquisition
from pnml_bench import data, zoo
from pnml_bench.methods.view import View
from pnml_bench.model_under_test import show

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml.core.scaling import EmbeddingScale

Table = dict[str, Any]


def labelling(checkpoint: str, scales: Sequence[EmbeddingScale], pool: int, judged: int, seeds: int) -> Table:
    """Simulate active learning on digits and on CIFAR-10, with all features and with the first principal components.

    Args:
        checkpoint: of the network that embeds CIFAR-10's images.
        scales: the embedding scales to take the regret at.
        pool: how many of the images to choose from.
        judged: how many to judge by.
        seeds: how often.
    """
    strategies = {
        "random": acquisition.at_random,
        "entropy": acquisition.by_entropy,
        "1 - largest probability": acquisition.by_confidence,
        **{f"regret, {scale}": acquisition.by_regret(scale) for scale in scales},
    }
    foreign = zoo.load(checkpoint)
    images = View(foreign, data.load("cifar10", limit=pool + judged), track=show)
    x, y = load_digits(return_X_y=True)
    digits = splits(x / 16, y, 1200, seeds)
    cifar = splits(images.embeddings.double().numpy(), images.images.labels, pool, seeds)
    few: Table = {"start": 20, "k": 20, "rounds": 10}
    many: Table = {"start": 100, "k": 100, "rounds": 5}
    settings = {
        "digits, 64 pixels": (digits, few),
        "digits, 16 components": ([reduced(split, 16) for split in digits], {**few, "start": 40}),
        f"CIFAR-10, {foreign.head.in_features} features": (cifar, many),
        "CIFAR-10, 32 components": ([reduced(split, 32) for split in cifar], many),
    }
    table: Table = {"embeddings": Path(checkpoint).stem}
    for setting, (drawn, plan) in settings.items():
        curves = {
            name: np.array(
                [
                    acquisition.simulate(strategy, *split, **plan, seed=seed)
                    for seed, split in track(list(enumerate(drawn)), f"{setting}: {name}")
                ]
            )
            for name, strategy in strategies.items()
        }
        (x, y), (_, y_judged) = drawn[0]
        about = {"plan": plan, "seeds": seeds, "features": x.shape[1], "pool": len(y), "judged": len(y_judged)}
        table[setting] = {**about, **{name: spread(curves, name) for name in curves}}
    return table


def spread(curves: dict[str, np.ndarray[Any, Any]], name: str) -> Table:
    """Return a learning curve's mean and deviation over the seeds, and its mean lead over each other curve."""
    heights = {other: curve.mean(axis=1) for other, curve in curves.items()}
    ahead = {other: heights[name] - height for other, height in heights.items() if other != name}
    return {
        "mean": curves[name].mean(axis=0).tolist(),
        "deviation": curves[name].std(axis=0, ddof=1).tolist(),
        "height": heights[name].mean(),
        "ahead_of": {
            other: {
                "mean": gap.mean(),
                "standard_error": gap.std(ddof=1) / len(gap) ** 0.5,
                "seeds": int((gap > 0).sum()),
            }
            for other, gap in ahead.items()
        },
    }


def splits(x: Any, y: Any, pool: int, seeds: int) -> list[Any]:
    """Draw rows to choose from, and others to judge by, anew for every seed."""
    drawn = []
    for seed in range(seeds):
        chosen, judged, y_chosen, y_judged = train_test_split(x, y, train_size=pool, random_state=seed)
        drawn.append(((chosen, y_chosen), (judged, y_judged)))
    return drawn


def reduced(split: Any, components: int) -> Any:
    """Project onto the first principal components of the pool, which needs no labels."""
    (x, y), (x_test, y_test) = split
    pca = PCA(components, random_state=0).fit(x)
    return (pca.transform(x), y), (pca.transform(x_test), y_test)
