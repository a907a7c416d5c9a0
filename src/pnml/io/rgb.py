"""Turn a Pillow image of any mode into RGB of 8 bits, by the range that its values may have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.extras import require

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BITS_PER_SAMPLE, _PHOTOMETRIC = 258, 262  # tags of TIFF
_SIXTEEN_BITS = 16


def to_rgb(image: Any) -> Any:
    """Return an image as RGB; raise ``ValueError`` where the range of its values is not known.

    Grey values of 16 bits keep their upper 8, as Pillow does it for colours of 16 bits. Floats are brightness from 0
    to 1. The range is that of the format, never that of the image at hand.
    """
    if image.mode == "RGB":
        image.load()
        return image
    if image.mode.startswith("I") or image.mode == "F":
        pillow = require("PIL.Image", extra="torch", what="reading images")
        return pillow.fromarray(_grey(image)).convert("RGB")
    return image.convert("RGB")


def _grey(image: Any) -> NDArray[np.uint8]:
    """Return grey values of integers of 16 bits, or of floats, as 8 bits."""
    tags = getattr(image, "tag_v2", {})
    if tags.get(_PHOTOMETRIC) == 0:
        raise ValueError(f"its {_kind(image.mode)} grow from white to black: store them from black to white")
    values: NDArray[Any] = np.asarray(image)
    if image.mode == "F":
        low, high = float(values.min()), float(values.max())
        if not (low >= 0 and high <= 1):  # also for NaN
            raise ValueError(
                f"its floats go from {low:.4g} to {high:.4g}, expected 0 to 1: divide them by the largest possible"
            )
        return np.asarray(np.rint(values * 255), dtype=np.uint8)
    if image.mode == "I" and image.format not in {"PNG", "PPM"}:  # these two hold 16 bits in it
        raise ValueError("its integers have more than 16 bits or a sign: store them with 8 or 16 bits from 0 on")
    bits = tags.get(_BITS_PER_SAMPLE, (_SIXTEEN_BITS,))[0]
    return np.asarray(values >> (bits - 8), dtype=np.uint8)


def _kind(mode: str) -> str:
    return "floats" if mode == "F" else "integers"
