"""Decode encoded images into RGB of 8 bits, in threads; what is no image, or too large for one, is refused."""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from io import BytesIO
from threading import Condition
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from pnml.backend.extras import require

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

Encoded: TypeAlias = "Path | bytes"
Transform: TypeAlias = "Callable[[Any], Any]"  # from a Pillow image to a Pillow image

FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
"""The formats that are read, whatever a file is called. Pillow knows more, and starts programs for some of them."""

MAX_PIXELS = 1 << 26
"""Of one image, 8,192×8,192, and of all images that are decoded at the same time. A few kilobytes can hold more."""

_THREADS = min(32, os.cpu_count() or 1)
_BITS_PER_SAMPLE = 258  # a tag of TIFF
_PHOTOMETRIC = 262

_T = TypeVar("_T")
_R = TypeVar("_R")


class UndecodableError(ValueError):
    """Raised for content that is no image; a file that cannot be read raises ``OSError`` instead."""


class PixelGate:
    """Lets threads work on images as long as these have no more than ``capacity`` pixels together; others wait."""

    def __init__(self, capacity: int = MAX_PIXELS) -> None:
        self.capacity = capacity
        self.admitted = 0
        self._changed = Condition()

    @contextmanager
    def admit(self, pixels: int) -> Iterator[None]:
        """Wait until there is room for an image; one larger than all room waits until it is alone."""
        pixels = min(pixels, self.capacity)
        with self._changed:
            self._changed.wait_for(lambda: self.admitted + pixels <= self.capacity)
            self.admitted += pixels
        try:
            yield
        finally:
            with self._changed:
                self.admitted -= pixels
                self._changed.notify_all()


_GATE = PixelGate()


def read_image(encoded: Encoded, transform: Transform | None = None) -> NDArray[np.uint8]:
    """Return one image as RGB, a uint8 array (H, W, 3), cropped or resized by ``transform``; see :func:`open_rgb`."""
    with open_rgb(encoded) as rgb:
        return np.asarray(rgb if transform is None else transform(rgb))


@contextmanager
def open_rgb(encoded: Encoded) -> Iterator[Any]:
    """Yield a Pillow image, RGB, of a file or bytes.

    Meanwhile other threads wait if their images would have more than ``MAX_PIXELS`` together with this one. Content
    that is no image, is damaged, has more pixels, or values whose range is not known, raises ``UndecodableError``.
    """
    with BytesIO(encoded) if isinstance(encoded, bytes) else encoded.open("rb") as file:
        with _reporting(encoded):
            image = require("PIL.Image", extra="torch", what="reading images").open(file, formats=FORMATS)
            pixels = image.width * image.height
            if pixels > MAX_PIXELS:
                raise ValueError(f"{image.width:,}×{image.height:,} pixels, more than {MAX_PIXELS:,}: scale it down")
        with _GATE.admit(pixels):
            with _reporting(encoded):
                image = _to_rgb(image)
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


def _to_rgb(image: Any) -> Any:
    """Return a Pillow image as RGB; raise ``ValueError`` where the range of its values is not known.

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
        kind = "floats" if image.mode == "F" else "integers"
        raise ValueError(f"its {kind} grow from white to black: store them from black to white")
    values: NDArray[Any] = np.asarray(image)
    if image.mode == "F":
        low = float(values.min())
        high = float(values.max())
        if not (low >= 0 and high <= 1):  # also for NaN
            raise ValueError(
                f"its floats go from {low:.4g} to {high:.4g}, expected 0 to 1: divide them by the largest possible"
            )
        return np.asarray(np.rint(values * 255), dtype=np.uint8)
    if image.mode == "I" and image.format not in {"PNG", "PPM"}:  # these two hold 16 bits in it
        raise ValueError("its integers have more than 16 bits or a sign: store them with 8 or 16 bits from 0 on")
    bits = tags.get(_BITS_PER_SAMPLE, (16,))[0]
    return np.asarray(values >> (bits - 8), dtype=np.uint8)


def resize_to(size: int) -> Transform:
    """Return a transform that resizes to ``size`` × ``size`` pixels (bilinear, antialiased), ignoring the aspect."""
    resampling = require("PIL.Image", extra="torch", what="resizing images").Resampling.BILINEAR
    return lambda image: image if image.size == (size, size) else image.resize((size, size), resampling)


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
