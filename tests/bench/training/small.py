"""Small sets and recipes that train in a second."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pnml.bench.data import ImageSet
from pnml.bench.training import Recipe, recipe

if TYPE_CHECKING:
    from pnml.bench.zoo import Network

CLASSES = 4


def small_set(count: int, seed: int) -> ImageSet:
    """Noisy images of 8×8 pixels, each class with a colour of its own."""
    draw = np.random.default_rng(seed)
    colours = np.array([[200, 60, 60], [60, 200, 60], [60, 60, 200], [150, 150, 150]])
    labels = draw.integers(0, CLASSES, count)
    images = colours[labels][:, None, None] + draw.normal(0, 40, (count, 8, 8, 3))
    return ImageSet("small", images.clip(0, 255).astype(np.uint8), labels, "train", "")


def strangers(count: int = 48) -> ImageSet:
    """Black and white noise."""
    images = np.random.default_rng(9).choice(np.array([0, 255], dtype=np.uint8), (count, 8, 8, 3))
    return ImageSet("strangers", images, None, "test", "")


def small_recipe(model: str = "resnet-20", *, tune: str | None = None, epochs: int = 3, lr: float = 0.05) -> Recipe:
    return replace(recipe(model, "cifar10", tune=tune), epochs=epochs, batch_size=16, lr=lr)


def same_weights(one: Network, other: Network) -> bool:
    ours, theirs = one.state_dict(), other.state_dict()
    return ours.keys() == theirs.keys() and all(bool((ours[name] == theirs[name]).all()) for name in ours)
