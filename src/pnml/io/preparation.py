"""Prepare images for a model: resize, scale to [0, 1] and normalise, or apply the model's own transform."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.extras import require
from pnml.io.decode import UndecodableError, in_threads, open_rgb, resize_to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from numpy.typing import NDArray

    from pnml.io.decode import Encoded

MAX_BATCH_PIXELS = 1 << 27
"""Of a batch for a model whose images keep their size, 128 images of 1,024×1,024."""


@dataclass(frozen=True)
class Preparation:
    """The processing of every image, decoded as RGB, before the model.

    Attributes:
        size: the side in pixels to resize to, bilinear with antialiasing; None keeps the size.
        mean: subtracted from each channel after scaling to [0, 1].
        std: the divisor of each channel after that.
        transform: replaces all of the above, from a Pillow image to a tensor (C, H, W).
    """

    size: int | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    transform: Callable[[Any], torch.Tensor] | None = None

    def record(self) -> dict[str, Any]:
        """Return what identifies the processing, JSON-able; see :mod:`pnml.io.preparation_record`."""
        if self.transform is not None:
            return {"channels": "RGB", "transform": _text_of(self.transform)}
        return {
            "channels": "RGB",
            "resize": "bilinear, antialiased",
            "size": self.size,
            "mean": list(self.mean),
            "std": list(self.std),
        }

    def decode(self, encoded: Sequence[Encoded | NDArray[np.uint8]], *, strict: bool) -> list[torch.Tensor | None]:
        """Decode and prepare images in threads, as tensors (C, H, W), not yet normalised unless there is a transform.

        They are files, their contents, or pixels, RGB, uint8 (H, W, 3). One that does not decode is None, or raises
        ``UndecodableError`` with ``strict``. Images that keep their size raise ``ValueError`` where they have too many
        pixels together.
        """

        def attempt(image: Encoded | NDArray[np.uint8]) -> torch.Tensor | None:
            try:
                return self._prepare(image)
            except UndecodableError:
                if strict:
                    raise
                return None

        prepared: list[torch.Tensor | None] = []
        pixels = 0
        for image in in_threads(attempt, encoded):
            prepared.append(image)
            if image is not None and self.size is None:
                height, width = image.shape[-2:]
                pixels += height * width
                if pixels > MAX_BATCH_PIXELS:
                    raise ValueError(
                        f"the images of a batch have more than {MAX_BATCH_PIXELS:,} pixels together, one of them "
                        f"{width:,}×{height:,}: give --size, or a smaller --batch-size"
                    )
        return prepared

    def batch(self, images: Sequence[torch.Tensor]) -> torch.Tensor:
        """Return prepared images of one size as a normalised batch, (n, C, H, W)."""
        torch_ = require("torch", extra="torch", what="preparing images")
        shapes = sorted({tuple(image.shape) for image in images})
        if len(shapes) > 1:
            raise ValueError(f"expected images of one shape, got {shapes[0]} and {shapes[1]}: give --size")
        batch: torch.Tensor = torch_.stack(list(images))
        if self.transform is not None:
            return batch
        mean, std = (torch_.tensor(values)[:, None, None] for values in (self.mean, self.std))
        return batch.float().div_(255).sub_(mean).div_(std)  # in place: a batch may be large

    def _prepare(self, encoded: Encoded | NDArray[np.uint8]) -> torch.Tensor:
        if isinstance(encoded, np.ndarray):
            pillow = require("PIL.Image", extra="torch", what="preparing images")
            return self._prepare_rgb(pillow.fromarray(encoded))
        with open_rgb(encoded) as rgb:
            return self._prepare_rgb(rgb)

    def _prepare_rgb(self, rgb: Any) -> torch.Tensor:
        """Return a Pillow image, RGB, as a tensor (C, H, W)."""
        torch_ = require("torch", extra="torch", what="preparing images")
        if self.transform is None:
            pixels = np.array(rgb if self.size is None else resize_to(self.size)(rgb))
            image: torch.Tensor = torch_.from_numpy(pixels).permute(2, 0, 1)
            return image
        pillow = require("PIL.Image", extra="torch", what="preparing images")
        tensor = self.transform(pillow.fromarray(np.asarray(rgb)))  # pixels alone, no orientation or colour profile
        if not torch_.is_tensor(tensor):
            raise ValueError(
                f"the factory's transform returned {type(tensor).__name__}: expected a tensor (channels, height, width)"
            )
        return tensor


def _text_of(transform: Callable[[Any], Any]) -> str:
    """Return a text that is the same in another process: the name of a function, or the repr without addresses."""
    name = getattr(transform, "__qualname__", None)
    if name is not None:
        return f"{transform.__module__}.{name}"
    return " ".join(re.sub(r" at 0x[0-9a-fA-F]+", "", repr(transform)).split())
