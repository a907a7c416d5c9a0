"""From encoded pictures to the contents of a set."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml.bench.data.selection import Contents
from pnml.io.decode import LazyImages, UndecodableError, decode, read_image, too_large

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from numpy.typing import NDArray

    from pnml.io.decode import Encoded, Fit


def gather(
    encoded: Sequence[Encoded],
    labels: NDArray[np.int64] | None,
    total: int,
    *,
    fit: Fit | None,
    strict: bool,
) -> Contents:
    """Decode the chosen pictures of a set, at once if they fit into memory and otherwise when they are used.

    Pictures that do not decode are left out and counted in the note, or an error with ``strict``. Where they are
    decoded when used, it is always an error.
    """
    height, width = _first_size(encoded, fit)
    if too_large((len(encoded), height, width, 3)):
        return Contents(LazyImages(encoded, lambda one: read_image(one, fit), (height, width)), labels, total)
    images, kept = decode(encoded, fit=fit, strict=strict)
    bad = len(encoded) - len(kept)
    note = f"{bad:,} pictures do not decode and are left out" if bad else ""
    return Contents(images, None if labels is None else labels[kept], total - bad, note)


def _first_size(encoded: Sequence[Encoded], fit: Fit | None) -> tuple[int, int]:
    """Height and width of the first picture that decodes."""
    for one in encoded:
        try:
            height, width, _ = read_image(one, fit).shape
        except UndecodableError:
            continue
        return height, width
    raise ValueError(f"none of the {len(encoded)} pictures decodes")
