"""Images that are out-of-distribution for CIFAR-10, from installed packages."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import cycle, islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.backend.extras import require
from pnml.io.decode import read_image, resize_to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

SIDE = 32  # of every image, in pixels
COUNT = 400  # images of each kind
CROPS = (32, 64, 128, 256)  # sides of the crops of larger images, in pixels
PHOTOGRAPHS = ("china.jpg", "flower.jpg")
TEXTURES = ("brick.png", "grass.png", "gravel.png")


class Images(NamedTuple):
    """Images of one kind.

    Attributes:
        name: of the kind.
        pixels: shape (n, 32, 32, 3), uint8.
        captions: a description of each image.
        labels: class numbers of in-distribution images, shape (n,).
    """

    name: str
    pixels: NDArray[np.uint8]
    captions: Sequence[str]
    labels: NDArray[np.int64] | None = None


def ood_images() -> list[Images]:
    """Return the images of every kind; textures only if scikit-image is installed."""
    textures = texture_files()
    return [
        digits(),
        photographs(),
        *([crops("Crops of textures", {path.name: read_image(path) for path in textures})] if textures else []),
        noise("uniform"),
        noise("gaussian"),
    ]


def digits() -> Images:
    """Return handwritten digits of scikit-learn, enlarged from 8×8 grey pixels.

    >>> digits().captions[:3]
    ['handwritten 0', 'handwritten 4', 'handwritten 8']
    """
    dataset = _sklearn_datasets().load_digits()
    rows = np.arange(COUNT) * len(dataset.images) // COUNT
    greys = np.round(dataset.images[rows] * (255 / 16)).astype(np.uint8)
    pixels = np.stack([_resized(np.stack([grey] * 3, axis=-1)) for grey in greys])
    return Images("Handwritten digits", pixels, [f"handwritten {digit}" for digit in dataset.target[rows]])


def photographs() -> Images:
    """Return crops of the two photographs of scikit-learn: a Chinese temple and a flower."""
    load = _sklearn_datasets().load_sample_image
    return crops("Crops of photographs", {name: load(name) for name in PHOTOGRAPHS})


def texture_files() -> list[Path]:
    """Return the paths of the textures that are part of the installed scikit-image, without downloading others."""
    spec = find_spec("skimage")
    folders = (spec and spec.submodule_search_locations) or []
    paths = [Path(folder) / "data" / name for folder in folders for name in TEXTURES]
    return [path for path in paths if path.is_file()]


def noise(kind: str) -> Images:
    """Return "uniform" or "gaussian" noise images as in the paper.

    >>> int(noise("uniform").pixels.max())
    254
    """
    name = f"{kind.capitalize()} noise"
    rng = np.random.default_rng(0)
    shape = (COUNT, SIDE, SIDE, 3)
    if kind == "uniform":
        pixels = rng.integers(0, 255, size=shape, dtype=np.uint8)
    else:
        pixels = np.clip(127.5 + 255 * rng.standard_normal(shape), 0, 255).astype(np.uint8)
    return Images(name, pixels, [name] * COUNT)


def crops(name: str, images: Mapping[str, NDArray[np.uint8]], *, seed: int = 0) -> Images:
    """Return random square crops of large images (H, W, 3), resized to 32×32 with antialiasing.

    The crops cycle through the sides in ``CROPS`` and the images.

    >>> grey = crops("Grey", {"grey.png": np.full((300, 400, 3), 99, dtype=np.uint8)})
    >>> grey.pixels.shape, bool((grey.pixels == 99).all())
    ((400, 32, 32, 3), True)
    >>> grey.captions[1]
    '64-pixel crop of grey.png'
    """
    rng = np.random.default_rng(seed)
    pixels, captions = [], []
    for side, (title, image) in islice(cycle(product(CROPS, images.items())), COUNT):
        top, left = (int(rng.integers(length - side + 1)) for length in image.shape[:2])
        pixels.append(_resized(image[top : top + side, left : left + side]))
        captions.append(f"{side}-pixel crop of {title}")
    return Images(name, np.stack(pixels), captions)


def _resized(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    pillow = require("PIL.Image", extra="torch", what="resizing images")
    return np.asarray(resize_to(SIDE)(pillow.fromarray(np.ascontiguousarray(image))))


def _sklearn_datasets() -> Any:
    return require("sklearn.datasets", extra="sklearn", what="the demo")
