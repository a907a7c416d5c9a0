"""Small pictures that are carried in the page itself."""

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
"""How many of a set's most trusted pictures are shown, and how many of its least trusted."""
SIDE = 128
"""The longest side of a picture in the page, in pixels."""
_LOSSLESS = 64  # up to this many pixels a side, PNG is small enough, and JPEG would blur what the network saw


class Extremes(NamedTuple):
    """The rows of the most trusted samples, the most trusted first; and of the least, the least first."""

    most: NDArray[np.intp]
    least: NDArray[np.intp]


def extremes(regret: NDArray[np.float64], count: int = GALLERY) -> Extremes:
    """Choose the rows of smallest and of largest regret, ``count`` of each or as many as there are, none twice.

    >>> extremes(np.array([0.3, 0.1, 0.2]), count=2)
    Extremes(most=array([1, 2]), least=array([0]))
    """
    order = np.argsort(regret, kind="stable")
    half = (len(order) + 1) // 2
    return Extremes(order[: min(count, half)], order[half:][::-1][:count])


def thumbnail(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Make a picture (H, W, 3) no larger than ``SIDE`` a side, keeping its aspect.

    >>> thumbnail(np.zeros((256, 512, 3), dtype=np.uint8)).shape
    (64, 128, 3)
    """
    if max(image.shape[:2]) <= SIDE:
        return image
    pillow = require("PIL.Image", extra="torch", what="a report with pictures")
    picture = pillow.fromarray(image)
    picture.thumbnail((SIDE, SIDE))
    return np.asarray(picture)


def data_uri(image: NDArray[np.uint8]) -> str:
    """Encode a picture (H, W, 3) as the address of an ``<img>``: small ones without loss."""
    pillow = require("PIL.Image", extra="torch", what="a report with pictures")
    lossless = max(image.shape[:2]) <= _LOSSLESS
    buffer = BytesIO()
    if lossless:
        pillow.fromarray(image).save(buffer, "PNG", optimize=True)
    else:
        pillow.fromarray(image).save(buffer, "JPEG", quality=82)
    return f"data:image/{'png' if lossless else 'jpeg'};base64,{base64.b64encode(buffer.getvalue()).decode('ascii')}"


def picture(scored: ScoredSet, row: int) -> NDArray[np.uint8] | None:
    """Give a sample's picture, small; None where there is none, or none that decodes."""
    images = scored.images
    if images is None:
        return None
    if isinstance(images, Mapping):
        return thumbnail(images[row]) if row in images else None
    found = images[row]
    if isinstance(found, np.ndarray):
        return thumbnail(found)
    try:
        return thumbnail(read_image(Path(found)))
    except UndecodableError:
        return None
