"""Select the samples of the gallery, and embed their images in the page."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pnml.backend.extras import require
from pnml.io.decode import UndecodableError, read_image

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.report.model import ScoredSet

GALLERY = 12
"""Number of most trusted and of least trusted samples displayed per set."""
SIDE = 128
"""The longest side of an embedded image in pixels."""
_LOSSLESS = 64  # images of at most this side are encoded as PNG, so that JPEG does not blur the network's input


class Extremes(NamedTuple):
    """The rows of the most trusted samples, most trusted first, and of the least trusted, least trusted first."""

    most: NDArray[np.intp]
    least: NDArray[np.intp]


def extremes(regret: NDArray[np.float64], count: int = GALLERY) -> Extremes:
    """Return the rows of smallest and of largest regret, at most ``count`` of each and none in both.

    >>> extremes(np.array([0.3, 0.1, 0.2]), count=2)
    Extremes(most=array([1, 2]), least=array([0]))
    """
    order = np.argsort(regret, kind="stable")
    half = (len(order) + 1) // 2
    return Extremes(order[: min(count, half)], order[half:][::-1][:count])


def thumbnail(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image (H, W, 3) reduced to at most ``SIDE`` pixels a side, with the same aspect ratio.

    >>> thumbnail(np.zeros((256, 512, 3), dtype=np.uint8)).shape
    (64, 128, 3)
    """
    pillow = require("PIL.Image", extra="torch", what="a report with images")
    reduced = pillow.fromarray(image)
    reduced.thumbnail((SIDE, SIDE))
    return np.asarray(reduced)


def data_uri(image: NDArray[np.uint8]) -> str:
    """Return an image (H, W, 3) as a data URI: small images as PNG, others as JPEG."""
    pillow = require("PIL.Image", extra="torch", what="a report with images")
    kind = "png" if max(image.shape[:2]) <= _LOSSLESS else "jpeg"
    options = {"optimize": True} if kind == "png" else {"quality": 82}
    buffer = BytesIO()
    pillow.fromarray(image).save(buffer, kind, **options)
    return f"data:image/{kind};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def sample_thumbnail(scored: ScoredSet, row: int) -> NDArray[np.uint8] | None:
    """Return the thumbnail of a sample; None if it has no image or the image cannot be read."""
    images = scored.images
    if images is None:
        return None
    if isinstance(images, Mapping):
        return thumbnail(images[row]) if row in images else None
    image = images[row]
    if isinstance(image, np.ndarray):
        return thumbnail(image)
    try:
        return thumbnail(read_image(Path(image)))
    except (OSError, UndecodableError):
        return None
