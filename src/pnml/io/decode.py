"""Pictures into uint8 arrays: decoded in threads, at once or, when they are too many for memory, when asked for."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from io import BytesIO
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from pnml.backend.extras import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

Encoded: TypeAlias = "Path | bytes"
Fit: TypeAlias = "Callable[[Any], Any]"  # from a Pillow image to a Pillow image

IN_MEMORY = 2 << 30  # bytes; sets that decode to more are decoded when asked for

_From = TypeVar("_From")
_To = TypeVar("_To")


class UndecodableError(ValueError):
    """A file or a value that Pillow cannot read as a picture."""


class LazyImages:
    """A read-only stand-in for an array (N, H, W, 3) of uint8 whose rows are made when they are indexed.

    Args:
        items: what each row is made from.
        read: makes one row, an array (H, W, 3), of one item; called in threads.
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
        """The rows that ``index`` (a number, slice, mask or array of numbers) picks, decoded now."""
        rows = np.arange(len(self))[index]
        images = np.empty((rows.size, *self.shape[1:]), dtype=np.uint8)
        for place, image in enumerate(in_threads(self._read, (self._items[row] for row in rows.flat))):
            if image.shape != self.shape[1:]:
                raise _unequal_sizes(image.shape, self.shape[1:])
            images[place] = image
        return images.reshape(rows.shape + self.shape[1:])

    def __array__(self, dtype: Any = None, copy: Any = None) -> NDArray[Any]:
        images = self[:]
        return images if dtype is None else images.astype(dtype, copy=False)

    def subset(self, index: Any) -> LazyImages:
        """The same for fewer rows, still not decoded."""
        rows = np.arange(len(self))[index]
        return LazyImages([self._items[row] for row in rows], self._read, (self.shape[1], self.shape[2]))


Images: TypeAlias = "NDArray[np.uint8] | LazyImages"


def read_image(encoded: Encoded, fit: Fit | None = None) -> NDArray[np.uint8]:
    """One picture as RGB, an array (H, W, 3) of uint8, after ``fit`` has cropped or resized it."""
    pillow = require("PIL.Image", extra="torch", what="reading pictures")
    try:
        with pillow.open(BytesIO(encoded) if isinstance(encoded, bytes) else encoded) as picture:
            rgb = picture.convert("RGB")
    except (OSError, SyntaxError, ValueError, EOFError, pillow.DecompressionBombError) as error:
        what = "a value" if isinstance(encoded, bytes) else str(encoded)
        raise UndecodableError(f"{what} does not decode as a picture ({error}): repair or remove it") from error
    return np.asarray(rgb if fit is None else fit(rgb))


def decode(
    encoded: Sequence[Encoded], *, fit: Fit | None = None, strict: bool = False
) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """Decode pictures that fit into memory.

    Args:
        encoded: files, or the bytes of files.
        fit: crops or resizes each picture; without it all must have one size.
        strict: raise on the first that does not decode, instead of leaving it out.

    Returns:
        The images, (K, H, W, 3), and which of ``encoded`` they are, (K,).
    """

    def attempt(one: Encoded) -> NDArray[np.uint8] | None:
        try:
            return read_image(one, fit)
        except UndecodableError:
            if strict:
                raise
            return None

    images: NDArray[np.uint8] | None = None
    kept: list[int] = []
    for row, image in enumerate(in_threads(attempt, encoded)):
        if image is None:
            continue
        if images is None:
            images = np.empty((len(encoded), *image.shape), dtype=np.uint8)
        if image.shape != images.shape[1:]:
            raise _unequal_sizes(image.shape, images.shape[1:])
        images[len(kept)] = image
        kept.append(row)
    if images is None:
        raise ValueError(f"none of the {len(encoded)} pictures decodes")
    return images[: len(kept)], np.asarray(kept, dtype=np.intp)


def resize_to(size: int) -> Fit:
    """A fit to ``size`` × ``size`` pixels, bilinear with antialiasing, whatever the aspect."""
    resampling = require("PIL.Image", extra="torch", what="resizing pictures").Resampling.BILINEAR
    return lambda picture: picture if picture.size == (size, size) else picture.resize((size, size), resampling)


def centre_crop_to(size: int) -> Fit:
    """A fit to the middle ``size`` × ``size`` pixels."""

    def fit(picture: Any) -> Any:
        left, top = (picture.width - size) // 2, (picture.height - size) // 2
        if min(left, top) < 0:
            raise ValueError(f"a picture of {picture.width}×{picture.height} pixels has no crop of {size}×{size}")
        return picture.crop((left, top, left + size, top + size))

    return fit


def resized(images: Images, size: int) -> Images:
    """Decoded images, resized to ``size`` × ``size`` pixels as :func:`resize_to` does."""
    if images.shape[1:3] == (size, size):
        return images
    pillow, fit = require("PIL.Image", extra="torch", what="resizing pictures"), resize_to(size)
    lazy = LazyImages(list(np.asarray(images)), lambda image: np.asarray(fit(pillow.fromarray(image))), (size, size))
    return lazy if too_large(lazy.shape) else lazy[:]


def too_large(shape: tuple[int, ...]) -> bool:
    """Whether uint8 images of this shape are too large to be kept in memory."""
    return int(np.prod(shape)) > IN_MEMORY


def in_threads(function: Callable[[_From], _To], items: Iterable[_From]) -> Iterator[_To]:
    """``map`` in threads, in order: Pillow decodes outside Python's lock."""
    with ThreadPoolExecutor(min(32, os.cpu_count() or 1)) as pool:
        yield from pool.map(function, items)


def _unequal_sizes(one: tuple[int, ...], other: tuple[int, ...]) -> ValueError:
    return ValueError(
        f"pictures of different sizes in one set ({one[1]}×{one[0]} and {other[1]}×{other[0]} pixels): "
        "give size=... to resize them all"
    )
