"""What is asked of a published set, and what a reader answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.io.decode import Images


@dataclass(frozen=True)
class Selection:
    """Which images of a set, and how.

    Attributes:
        split: "train" or "test".
        limit: at most this many images; None for all.
        seed: of what is drawn at random (noise, crop positions).
        size: the side in pixels to resize to; None for the published size.
    """

    split: str = "test"
    limit: int | None = None
    seed: int = 0
    size: int | None = None

    def rows(self, count: int) -> NDArray[np.intp]:
        """The chosen ones of ``count`` images: evenly spaced, so that a set sorted by class stays balanced.

        >>> Selection(limit=4).rows(10).tolist()
        [0, 2, 5, 7]
        """
        kept = count if self.limit is None else min(self.limit, count)
        return np.arange(kept) * count // max(kept, 1)


class Contents(NamedTuple):
    """What a reader found: ``total`` images are there, of which ``images`` were chosen."""

    images: Images
    labels: NDArray[np.int64] | None
    total: int
    note: str = ""


Reader: TypeAlias = "Callable[[Path, Selection], Contents]"
