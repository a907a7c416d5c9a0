"""Noise as images, made as the paper makes it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.bench.data.selection import Contents

if TYPE_CHECKING:
    from pnml.bench.data.selection import Selection

COUNT = 10_000
_SHAPE = (32, 32, 3)


def make_uniform(selection: Selection) -> Contents:
    """Every channel value an integer drawn from [0, 255): 255 itself does not occur, as in the paper."""
    draw = np.random.default_rng(selection.seed)
    images = draw.integers(0, 255, size=(COUNT, *_SHAPE), dtype=np.uint8)
    return Contents(images[selection.rows(COUNT)], None, COUNT)


def make_gaussian(selection: Selection) -> Contents:
    """Every channel value clip(127.5 + 255·N(0, 1), 0, 255), cut to an integer; most end at 0 or 255."""
    draw = np.random.default_rng(selection.seed)
    images = np.empty((COUNT, *_SHAPE), dtype=np.uint8)
    for image in images:  # one at a time, for floats take many times the memory of the result
        image[...] = np.clip(127.5 + 255 * draw.standard_normal(_SHAPE), 0, 255)
    return Contents(images[selection.rows(COUNT)], None, COUNT)
