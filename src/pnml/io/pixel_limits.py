"""How many pixels may be decoded: of one image, at the same time, and for one batch."""

from __future__ import annotations

from contextlib import contextmanager
from threading import Condition, Lock
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_PIXELS = 1 << 26
"""Of one image, 8,192×8,192, and of all images that are decoded at the same time. A few kilobytes can hold more."""

MAX_BATCH_PIXELS = 1 << 27
"""Of a batch for a model, 128 images of 1,024×1,024."""


class PixelGate:
    """Lets threads work on images as long as these have no more than ``capacity`` pixels together; others wait.

    >>> gate = PixelGate(capacity=100)
    >>> with gate.admit(60), gate.admit(40):
    ...     gate.admitted
    100
    """

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


class BatchBudget:
    """Counts the pixels of a batch, in threads, and refuses those beyond ``capacity``."""

    def __init__(self, capacity: int = MAX_BATCH_PIXELS) -> None:
        self.capacity = capacity
        self._left = capacity
        self._lock = Lock()

    def take(self, height: int, width: int) -> None:
        """Count an image; raise ``ValueError`` if it is too much."""
        with self._lock:
            self._left -= height * width
            if self._left < 0:
                raise ValueError(
                    f"the images of a batch have more than {self.capacity:,} pixels together, one of them "
                    f"{width:,}×{height:,}: give --size, or a smaller --batch-size"
                )
