"""What a reader of an image set takes (a selection) and returns (contents)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np

from pnml.io.decode import resize_to
from pnml_bench.data.lazy_images import decode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.io.decode import Encoded, Transform
    from pnml_bench.data.lazy_images import Images


@dataclass(frozen=True)
class Selection:
    """Which images of a set to read, and at which size.

    Attributes:
        split: "train" or "test".
        limit: the maximum number of images; None for all.
        seed: seed for noise and for crop positions.
        size: the side in pixels to resize to; None for the published size.
    """

    split: str = "test"
    limit: int | None = None
    seed: int = 0
    size: int | None = None

    def rows(self, count: int) -> NDArray[np.intp]:
        """Return the selected rows of ``count``, evenly spaced so that a set sorted by class stays balanced.

        >>> Selection(limit=4).rows(10).tolist()
        [0, 2, 5, 7]
        """
        kept = count if self.limit is None else min(self.limit, count)
        return np.arange(kept) * count // max(kept, 1)


class Contents(NamedTuple):
    """What a reader returns: the selected ``images`` of the ``total`` on disk."""

    images: Images
    labels: NDArray[np.int64] | None
    total: int
    note: str = ""


Reader: TypeAlias = "Callable[[Path, Selection], Contents]"


def decode_contents(
    encoded: Sequence[Encoded],
    labels: NDArray[np.int64] | None,
    total: int,
    *,
    size: int | None,
    transform: Transform | None = None,
    strict: bool = False,
) -> Contents:
    """Decode the selected images of a set, as :func:`pnml_bench.data.lazy_images.decode` does.

    Args:
        encoded: the selected images.
        labels: their labels.
        total: the number of images in the set.
        size: the side in pixels to resize to, unless there is a ``transform``.
        transform: crops or resizes each image.
        strict: raise on an image that does not decode instead of skipping it and counting it in the note.
    """
    if transform is None and size is not None:
        transform = resize_to(size)
    images, kept = decode(encoded, transform=transform, strict=strict)
    skipped = len(encoded) - len(kept)
    note = f"{skipped:,} images do not decode and are skipped" if skipped else ""
    return Contents(images, None if labels is None else labels[kept], total - skipped, note)
