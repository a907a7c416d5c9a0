"""Image sets that several networks use, loaded once."""

from __future__ import annotations

from math import prod
from typing import TYPE_CHECKING

from pnml_bench.data import load

if TYPE_CHECKING:
    from pnml_bench.data import ImageSet

_LARGEST = 1 << 28  # bytes of a set that is kept; larger ones are loaded again


class DatasetCache:
    """Loads image sets and keeps those of moderate size.

    Args:
        limit: take at most this many images of every set.

    >>> cache = DatasetCache(limit=5)
    >>> cache.load("uniform")
    ImageSet('uniform', 'test', 5 images of 32×32 pixels)
    >>> cache.load("uniform") is cache.load("uniform")
    True
    """

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self._kept: dict[tuple[str, str, int, int | None], ImageSet] = {}

    def load(self, name: str, *, split: str = "test", seed: int = 0, size: int | None = None) -> ImageSet:
        """Return a set as :func:`pnml_bench.data.load` does, loaded at most once if it is of moderate size."""
        key = name, split, seed, size
        if key in self._kept:
            return self._kept[key]
        images = load(name, split=split, limit=self.limit, seed=seed, size=size)
        if prod(images.images.shape) <= _LARGEST:
            self._kept[key] = images
        return images
