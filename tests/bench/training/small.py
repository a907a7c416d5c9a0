"""Small sets and recipes that train in a second."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pnml_bench.data import ImageSet
from pnml_bench.training import Recipe, recipe

if TYPE_CHECKING:
    from pnml_bench.zoo import Network

CLASSES = 4


def small_set(count: int, seed: int) -> ImageSet:
    """Return noisy images of 8×8 pixels, one colour per class."""
    rng = np.random.default_rng(seed)
    colours = np.array([[200, 60, 60], [60, 200, 60], [60, 60, 200], [150, 150, 150]])
    labels = rng.integers(0, CLASSES, count)
    images = colours[labels][:, None, None] + rng.normal(0, 40, (count, 8, 8, 3))
    return ImageSet("small", images.clip(0, 255).astype(np.uint8), labels, "train", "")


def outlier_set(count: int = 48) -> ImageSet:
    """Return black and white noise without labels."""
    images = np.random.default_rng(9).choice(np.array([0, 255], dtype=np.uint8), (count, 8, 8, 3))
    return ImageSet("outliers", images, None, "test", "")


def small_recipe(model: str = "resnet-20", *, tune: str | None = None, epochs: int = 3, lr: float = 0.05) -> Recipe:
    return replace(recipe(model, "cifar10", tune=tune), epochs=epochs, batch_size=16, lr=lr)


def same_weights(first: Network, second: Network) -> bool:
    one, other = first.state_dict(), second.state_dict()
    return one.keys() == other.keys() and all(bool((one[name] == other[name]).all()) for name in one)
