"""Decode encoded images into uint8 arrays, in threads; images too large for memory are decoded when indexed."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from pnml.backend.extras import require
from pnml.io.pixel_limits import MAX_PIXELS, PixelGate
from pnml.io.rgb import to_rgb

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

Encoded: TypeAlias = "Path | bytes"
Transform: TypeAlias = "Callable[[Any], Any]"  # from a Pillow image to a Pillow image

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The formats that are read, whatever a file is called. Pillow knows more, and starts programs for some of them."""

MAX_BYTES_IN_MEMORY = 2 << 30

_THREADS = min(32, os.cpu_count() or 1)
_GATE = PixelGate()

_T = TypeVar("_T")
_R = TypeVar("_R")


class UndecodableError(ValueError):
    """Raised for content that is no image; a file that cannot be read raises ``OSError`` instead."""


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


def read_image(encoded: Encoded, transform: Transform | None = None) -> NDArray[np.uint8]:
    """Return one image as RGB, a uint8 array (H, W, 3), cropped or resized by ``transform``.

    Raises:
        UndecodableError: its content is no image of a known format, is damaged, has more than ``MAX_PIXELS``, or
            values whose range is not known.
        OSError: the file cannot be read.
    """
    with open_rgb(encoded) as rgb:
        return np.asarray(rgb if transform is None else transform(rgb))


@contextmanager
def open_rgb(encoded: Encoded) -> Iterator[Any]:
    """Yield a Pillow image, RGB, of a file or bytes; raise as :func:`read_image`.

    Meanwhile other threads wait if their images would have more than ``MAX_PIXELS`` together with this one.
    """
    with BytesIO(encoded) if isinstance(encoded, bytes) else encoded.open("rb") as file:
        with _reporting(encoded):
            image = require("PIL.Image", extra="torch", what="reading images").open(file, formats=FORMATS)
            pixels = image.width * image.height
            if pixels > MAX_PIXELS:
                raise ValueError(f"{image.width:,}×{image.height:,} pixels, more than {MAX_PIXELS:,}: scale it down")
        with _GATE.admit(pixels):
            with _reporting(encoded):
                image = to_rgb(image)
            yield image


@contextmanager
def _reporting(encoded: Encoded) -> Iterator[None]:
    """Raise ``UndecodableError`` for whatever Pillow raises for a damaged or foreign image."""
    try:
        yield
    except MemoryError:
        raise
    except Exception as error:  # decoders raise many types for hostile content
        if isinstance(error, OSError) and error.errno is not None:  # of the disk, not of the content
            raise OSError(error.errno, error.strerror, str(encoded)) from error
        what = f"a value of {len(encoded)} bytes" if isinstance(encoded, bytes) else str(encoded)
        raise UndecodableError(f"{what} does not decode as an image ({error}): repair or remove it") from error


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


def resize_to(size: int) -> Transform:
    """Return a transform that resizes to ``size`` × ``size`` pixels (bilinear, antialiased), ignoring the aspect."""
    resampling = require("PIL.Image", extra="torch", what="resizing images").Resampling.BILINEAR
    return lambda image: image if image.size == (size, size) else image.resize((size, size), resampling)


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


def in_threads(function: Callable[[_T], _R], items: Iterable[_T]) -> Iterator[_R]:
    """Map ``function`` over ``items`` in threads, in order; Pillow releases the GIL while it decodes.

    A few results are computed ahead, not more, so that they do not pile up where the caller is slow.
    """
    pending: deque[Future[_R]] = deque()
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) > 2 * _THREADS:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


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
