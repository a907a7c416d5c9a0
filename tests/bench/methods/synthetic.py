"""Synthetic images of three classes, and noise."""

from __future__ import annotations

import numpy as np

from pnml_bench.data import ImageSet

CLASSES = 3


def image_set(images: np.ndarray, split: str = "test") -> ImageSet:
    return ImageSet("synthetic", images, None, split, "")


def blobs(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return smooth images, each with one bright colour, and the number of that colour."""
    rng = np.random.default_rng(seed)
    labels = np.arange(n) % CLASSES
    coarse = rng.integers(0, 90, (n, 4, 4, 3))
    coarse[np.arange(n), :, :, labels] += rng.integers(90, 160, (n, 4, 4))
    return coarse.repeat(4, axis=1).repeat(4, axis=2).astype(np.uint8), labels


def noise(n: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 255, (n, 16, 16, 3), dtype=np.uint8)
