"""Decode image sets into uint8 arrays; sets too large for memory are decoded when they are indexed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pnml.backend.extras import require
from pnml.io.decode import UndecodableError, in_threads, read_image, resize_to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from pnml.io.decode import Encoded, Transform

MAX_BYTES_IN_MEMORY = 2 << 30


class LazyImages:
    """A read-only uint8 array (N, H, W, 3) whose rows are decoded when they are indexed.

    Args:
        items: one source per row.
        read: returns the row (H, W, 3) of one item; called in threads.
        size: height and width of every row.

    >>> lazy = LazyImages([1, 2, 3], lambda value: np.full((4, 4, 3), value, dtype=np.uint8), (4, 4))
    >>> lazy.shape
    (3, 4, 4, 3)
    >>> lazy[1:][:, 0, 0, 0].tolist()
    [2, 3]
    """

    dtype = np.dtype(np.uint8)
    ndim = 4

    def __init__(self, items: Sequence[Any], read: Callable[[Any], NDArray[np.uint8]], size: tuple[int, int]) -> None:
        self._items = items
        self._read = read
        self.shape = (len(items), *size, 3)

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, index: Any) -> NDArray[np.uint8]:
        """Decode and return the rows selected by ``index``: an integer, slice, mask or array of integers."""
        rows = np.arange(len(self))[index]
        images = np.empty((rows.size, *self.shape[1:]), dtype=np.uint8)
        for position, image in enumerate(in_threads(self._read, (self._items[row] for row in rows.flat))):
            _check_same_size(image.shape, self.shape[1:])
            images[position] = image
        return images.reshape(rows.shape + self.shape[1:])

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        images = self[:]
        return images if dtype is None else images.astype(dtype, copy=False)


Images: TypeAlias = "NDArray[np.uint8] | LazyImages"


def decode(
    encoded: Sequence[Encoded], *, transform: Transform | None = None, strict: bool = False
) -> tuple[Images, NDArray[np.intp]]:
    """Decode images now if they fit into memory; otherwise return a :class:`LazyImages`.

    Args:
        encoded: image files, or their contents.
        transform: crops or resizes each image; without it all must have the same size.
        strict: raise on the first image that does not decode instead of skipping it. Lazy images always raise.

    Returns:
        The K images (K, H, W, 3) and their positions in ``encoded`` (K,).
    """

    def read_or_skip(one: Encoded) -> NDArray[np.uint8] | None:
        try:
            return read_image(one, transform)
        except UndecodableError:
            if strict:
                raise
            return None

    lazy = LazyImages(encoded, lambda one: read_image(one, transform), _first_size(encoded, transform))
    if too_large(lazy.shape):
        return lazy, np.arange(len(encoded))
    images = np.empty(lazy.shape, dtype=np.uint8)
    kept: list[int] = []
    for row, image in enumerate(in_threads(read_or_skip, encoded)):
        if image is not None:
            _check_same_size(image.shape, images.shape[1:])
            images[len(kept)] = image
            kept.append(row)
    return images[: len(kept)], np.asarray(kept, dtype=np.intp)


def sample_to(size: int) -> Transform:
    """Return a transform that takes the nearest pixel for each of ``size`` × ``size``, without a filter: it aliases."""
    resampling = require("PIL.Image", extra="torch", what="resizing images").Resampling.NEAREST
    return lambda image: image.resize((size, size), resampling)


def centre_crop_to(size: int) -> Transform:
    """Return a transform that crops the central ``size`` × ``size`` pixels."""

    def crop(image: Any) -> Any:
        left, top = (image.width - size) // 2, (image.height - size) // 2
        if min(left, top) < 0:
            raise ValueError(f"expected an image of at least {size}×{size} pixels, got {image.width}×{image.height}")
        return image.crop((left, top, left + size, top + size))

    return crop


def resize_images(images: Images, size: int) -> Images:
    """Return decoded images resized to ``size`` × ``size`` pixels as by :func:`resize_to`."""
    if images.shape[1:3] == (size, size):
        return images
    pillow, resize = require("PIL.Image", extra="torch", what="resizing images"), resize_to(size)
    lazy = LazyImages(list(np.asarray(images)), lambda image: np.asarray(resize(pillow.fromarray(image))), (size, size))
    return lazy if too_large(lazy.shape) else lazy[:]


def too_large(shape: tuple[int, ...]) -> bool:
    """Return whether uint8 images of this shape exceed ``MAX_BYTES_IN_MEMORY``."""
    return int(np.prod(shape)) > MAX_BYTES_IN_MEMORY


def _first_size(encoded: Sequence[Encoded], transform: Transform | None) -> tuple[int, int]:
    """Return height and width of the first image that decodes."""
    for one in encoded:
        try:
            height, width, _ = read_image(one, transform).shape
        except UndecodableError:
            continue
        return height, width
    raise ValueError(f"none of the {len(encoded)} images decodes")


def _check_same_size(found: tuple[int, ...], expected: tuple[int, ...]) -> None:
    if found != expected:
        raise ValueError(
            f"expected images of one size, got {found[1]}×{found[0]} and {expected[1]}×{expected[0]} pixels: "
            "pass size=... to resize them all"
        )
