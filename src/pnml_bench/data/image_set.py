"""A set of uint8 images with labels."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pnml.backend.extras import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch
    from numpy.typing import NDArray

    from pnml_bench.data.lazy_images import Images

_TRANSFER_BYTES = 1 << 28  # moved to the device at once


@dataclass(frozen=True, eq=False, repr=False)
class ImageSet:
    """Images of one size and, optionally, their labels.

    Attributes:
        name: the name or path it was loaded by.
        images: RGB, uint8, (N, H, W, 3): a NumPy array, or for a set too large for memory a
            :class:`~pnml_bench.data.lazy_images.LazyImages`.
        labels: class numbers, (N,), int64, or None.
        split: the part of the published set, such as "test".
        note: how the images differ from the published set, such as "20,000 of the 73,257 published images".

    >>> images = np.zeros((5, 32, 32, 3), dtype=np.uint8)
    >>> black = ImageSet("black", images, labels=None, split="test", note="")
    >>> black
    ImageSet('black', 'test', 5 images of 32×32 pixels)
    >>> [tuple(batch.shape) for batch in black.batches(3)]
    [(3, 3, 32, 32), (2, 3, 32, 32)]
    """

    name: str
    images: Images
    labels: NDArray[np.int64] | None
    split: str
    note: str

    def __post_init__(self) -> None:
        shape, dtype = self.images.shape, self.images.dtype
        if len(shape) != 4 or shape[-1] != 3 or dtype != np.uint8:
            raise ValueError(f"expected images of {self.name!r} to be uint8 (N, H, W, 3), got {dtype} {shape}")
        if self.labels is not None and (self.labels.shape != shape[:1] or self.labels.dtype != np.int64):
            raise ValueError(
                f"expected labels of {self.name!r} to be int64 {shape[:1]}, got {self.labels.dtype} {self.labels.shape}"
            )

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        height, width = self.images.shape[1:3]
        return f"ImageSet({self.name!r}, {self.split!r}, {len(self):,} images of {width}×{height} pixels)"

    def batches(self, batch_size: int, device: str | torch.device = "cpu") -> Iterator[torch.Tensor]:
        """Yield the images in order, as uint8 tensors (B, 3, H, W) on ``device``.

        Many batches are moved at once, and the next ones are read in a thread meanwhile.
        """
        if batch_size < 1:
            raise ValueError(f"expected batch_size to be at least 1, got {batch_size}")
        torch_ = require("torch", extra="torch", what="ImageSet.batches")
        row_bytes = int(np.prod(self.images.shape[1:]))
        step = batch_size * max(1, _TRANSFER_BYTES // (batch_size * row_bytes))
        starts = range(0, len(self), step)
        with ThreadPoolExecutor(1) as pool:
            pending = [pool.submit(self._rows, start, step) for start in starts[:1]]
            for start in starts:
                rows = pending.pop().result()
                if start + step < len(self):
                    pending.append(pool.submit(self._rows, start + step, step))
                moved = torch_.from_numpy(rows).to(device)
                for batch in moved.split(batch_size):
                    yield batch.permute(0, 3, 1, 2).contiguous()

    def _rows(self, start: int, count: int) -> NDArray[np.uint8]:
        # A copy, because tensors cannot share read-only memory.
        return np.array(self.images[start : start + count])
