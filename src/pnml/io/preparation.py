"""From encoded images to what a model takes: resized, scaled to [0, 1], normalised; or the model's own transform."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.extras import require
from pnml.io.decode import UndecodableError, in_threads, read_image, resize_to

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from pnml.io.decode import Encoded


@dataclass(frozen=True)
class Preparation:
    """What happens to every image, decoded as RGB, before the model sees it.

    Attributes:
        size: the side in pixels it is resized to, bilinear with antialiasing; as it is when None.
        mean: subtracted from each channel after scaling to [0, 1].
        std: what each channel is divided by then.
        transform: does it all instead, from a Pillow image to a tensor (C, H, W).
    """

    size: int | None = None
    mean: tuple[float, ...] = (0.0,)
    std: tuple[float, ...] = (1.0,)
    transform: Callable[[Any], torch.Tensor] | None = None

    def fingerprint(self) -> dict[str, Any]:
        """Say what happens, as far as it can be said."""
        return {"size": self.size, "mean": list(self.mean), "std": list(self.std), "transform": bool(self.transform)}

    def decode(self, encoded: Sequence[Encoded], *, strict: bool) -> list[torch.Tensor | None]:
        """Decode and prepare images in threads; None, or an error with ``strict``, stands for one that does not decode.

        Returns:
            Tensors (C, H, W), not yet normalised unless the transform did it.
        """

        def attempt(one: Encoded) -> torch.Tensor | None:
            try:
                return self._one(one)
            except UndecodableError:
                if strict:
                    raise
                return None

        return list(in_threads(attempt, encoded))

    def batch(self, images: Sequence[torch.Tensor]) -> torch.Tensor:
        """Stack prepared images of one size into the batch the model takes, (n, C, H, W)."""
        torch_ = require("torch", extra="torch", what="preparing images")
        shapes = sorted({tuple(image.shape) for image in images})
        if len(shapes) > 1:
            raise ValueError(f"images of shapes {shapes[0]} and {shapes[1]} do not go into one batch: give --size")
        batch: torch.Tensor = torch_.stack(list(images))
        if self.transform is not None:
            return batch
        mean, std = (torch_.tensor(values)[:, None, None] for values in (self.mean, self.std))
        normalised: torch.Tensor = (batch.float() / 255 - mean) / std
        return normalised

    def _one(self, encoded: Encoded) -> torch.Tensor:
        torch_ = require("torch", extra="torch", what="preparing images")
        if self.transform is None:
            pixels = read_image(encoded, None if self.size is None else resize_to(self.size))
            image: torch.Tensor = torch_.from_numpy(np.array(pixels)).permute(2, 0, 1)
            return image
        picture = require("PIL.Image", extra="torch", what="preparing images").fromarray(read_image(encoded))
        made = self.transform(picture)
        if not torch_.is_tensor(made):
            raise ValueError(
                f"the factory's transform returned {type(made).__name__}: expected a tensor (channels, height, width)"
            )
        return made
