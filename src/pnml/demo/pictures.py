"""Real pictures of what CIFAR-10 does not have, from packages that are installed anyway."""

from __future__ import annotations

from importlib.util import find_spec
from itertools import cycle, islice, product
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.backend.extras import require
from pnml.bench import data
from pnml.io.decode import read_image, resize_to

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from numpy.typing import NDArray

SIDE = 32  # pixels, of every picture
COUNT = 400  # pictures of each kind
WINDOWS = (32, 64, 128, 256)  # pixels, the sides of what is cut out of larger pictures
PHOTOGRAPHS = ("china.jpg", "flower.jpg")
TEXTURES = ("brick.png", "grass.png", "gravel.png")


class Pictures(NamedTuple):
    """Pictures of one kind.

    Attributes:
        name: of the kind.
        images: shape (n, 32, 32, 3), uint8.
        captions: what each picture shows, n of them.
        labels: their class numbers, shape (n,), where the network knows such things.
    """

    name: str
    images: NDArray[np.uint8]
    captions: Sequence[str]
    labels: NDArray[np.int64] | None = None


def strange_pictures() -> list[Pictures]:
    """Give every kind of strange picture that is installed: textures come with scikit-image only."""
    textures = texture_files()
    return [
        digits(),
        photographs(),
        *([windows("Windows of textures", {path.name: read_image(path) for path in textures})] if textures else []),
        noise("uniform"),
        noise("gaussian"),
    ]


def digits() -> Pictures:
    """Give scikit-learn's handwritten digits, evenly spaced over the set, enlarged from 8×8 greys.

    >>> digits().captions[:3]
    ['a handwritten 0', 'a handwritten 4', 'a handwritten 8']
    """
    found = _sklearn_datasets().load_digits()
    rows = np.arange(COUNT) * len(found.images) // COUNT
    greys = np.round(found.images[rows] * (255 / 16)).astype(np.uint8)
    images = np.stack([_resized(np.stack([grey] * 3, axis=-1)) for grey in greys])
    return Pictures("Handwritten digits", images, [f"a handwritten {digit}" for digit in found.target[rows]])


def photographs() -> Pictures:
    """Cut windows out of the two photographs that come with scikit-learn: a Chinese temple, and a flower."""
    load = _sklearn_datasets().load_sample_image
    return windows("Windows of photographs", {name: load(name) for name in PHOTOGRAPHS})


def texture_files() -> list[Path]:
    """Give the textures that lie in the installed scikit-image, which would download those that do not."""
    spec = find_spec("skimage")
    folders = (spec and spec.submodule_search_locations) or []
    paths = [Path(folder) / "data" / name for folder in folders for name in TEXTURES]
    return [path for path in paths if path.is_file()]


def noise(kind: str) -> Pictures:
    """Make noise as the paper does, "uniform" or "gaussian"."""
    name = f"{kind.capitalize()} noise"
    return Pictures(name, np.asarray(data.load(kind, limit=COUNT).images), [name] * COUNT)


def windows(name: str, pictures: Mapping[str, NDArray[np.uint8]], *, seed: int = 0) -> Pictures:
    """Cut square windows out of large pictures (H, W, 3), and shrink each to 32×32 with antialiasing.

    Every side of ``WINDOWS`` and every picture has its turn; the place is drawn by the seed.

    >>> made = windows("Grey", {"grey.png": np.full((300, 400, 3), 99, dtype=np.uint8)})
    >>> made.images.shape, bool((made.images == 99).all())
    ((400, 32, 32, 3), True)
    >>> made.captions[1]
    'a 64-pixel window of grey.png'
    """
    draw = np.random.default_rng(seed)
    images, captions = [], []
    for side, (title, picture) in islice(cycle(product(WINDOWS, pictures.items())), COUNT):
        top, left = (int(draw.integers(length - side + 1)) for length in picture.shape[:2])
        images.append(_resized(picture[top : top + side, left : left + side]))
        captions.append(f"a {side}-pixel window of {title}")
    return Pictures(name, np.stack(images), captions)


def _resized(picture: NDArray[np.uint8]) -> NDArray[np.uint8]:
    pillow = require("PIL.Image", extra="torch", what="resizing pictures")
    return np.asarray(resize_to(SIDE)(pillow.fromarray(np.ascontiguousarray(picture))))


def _sklearn_datasets() -> Any:
    return require("sklearn.datasets", extra="sklearn", what="the demo")
