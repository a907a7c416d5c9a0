"""Noise images, generated as in the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml_bench.data.selection import Contents

if TYPE_CHECKING:
    from pnml_bench.data.selection import Selection

COUNT = 10_000
_SHAPE = (32, 32, 3)


def generate_uniform(selection: Selection) -> Contents:
    """Draw every channel value uniformly from the integers 0 to 254; the paper excludes 255."""
    rng = np.random.default_rng(selection.seed)
    images = rng.integers(0, 255, size=(COUNT, *_SHAPE), dtype=np.uint8)
    return Contents(images[selection.rows(COUNT)], None, COUNT)


def generate_gaussian(selection: Selection) -> Contents:
    """Draw every channel value as clip(127.5 + 255·N(0, 1), 0, 255), truncated to an integer."""
    rng = np.random.default_rng(selection.seed)
    images = np.empty((COUNT, *_SHAPE), dtype=np.uint8)
    for image in images:  # one at a time: float64 takes eight times the memory of the result
        image[...] = np.clip(127.5 + 255 * rng.standard_normal(_SHAPE), 0, 255)
    return Contents(images[selection.rows(COUNT)], None, COUNT)
