"""How samples become embeddings: images are prepared for a model, and a detector keeps how, to refuse what differs."""

from __future__ import annotations

import re
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from pnml.backend.extras import require
from pnml.io.decode import UndecodableError, in_threads, open_rgb, resize_to
from pnml.io.feature_columns import list_names, match_columns

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch
    from numpy.typing import NDArray

    from pnml.io.decode import Encoded

MAX_BATCH_PIXELS = 1 << 27
"""Of a batch for a model whose images keep their size, 128 images of 1,024×1,024."""


Record: TypeAlias = dict[str, Any]
"""Of images, what :meth:`Preparation.record` returns, and where they keep their size the ``shape``
(height, width) of the first one. Of embeddings, the ``columns``; ``all`` says that nobody chose them among others."""


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
        """Return what identifies the processing, JSON-able."""
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


class PreparationWarning(UserWarning):
    """Images may be prepared in another way than those that a detector was fitted on."""


def of_images(record: Record | None) -> Record | None:
    """Return a record of images, and None for any other."""
    return record if record is not None and "channels" in record else None


def columns_of(record: Record | None) -> tuple[str, ...]:
    """Return the columns of embeddings; none where they have no names, and for a record of images."""
    return () if record is None else tuple(record.get("columns", ()))


def restore_preparation(
    record: Record | None,
    *,
    size: int | None = None,
    mean: tuple[float, ...] | None = None,
    std: tuple[float, ...] | None = None,
    transform: Callable[[Any], Any] | None = None,
) -> Preparation:
    """Return the preparation of a record, with the values that are given instead of those that it holds."""
    if transform is not None:
        return Preparation(transform=transform)
    values = of_images(record) or {}
    return Preparation(
        values.get("size") if size is None else size,
        tuple(values.get("mean", (0.0,))) if mean is None else mean,
        tuple(values.get("std", (1.0,))) if std is None else std,
    )


def check_preparation(fitted: Record | None, now: Record | None) -> None:
    """Raise ``ValueError`` for samples prepared in another way than those that a detector was fitted on.

    Warn where images keep their size, and the first one differs in shape from the first of the training set. A record
    of embeddings passes where the other is of images, or has no columns.
    """
    if fitted is None or now is None:
        return
    columns = columns_of(now)
    if columns != match_columns("the file", columns, columns_of(fitted), is_chosen="all" not in now):
        raise ValueError(
            f"the columns {list_names(columns)} are not in the order of the fit, {list_names(columns_of(fitted))}: "
            "open_embeddings(path, fitted=detector.preparation) reads them in that order"
        )
    fitted, now = of_images(fitted), of_images(now)
    if fitted is None or now is None:
        return
    if fitted.get("transform") != now.get("transform"):
        names = [one.get("transform") for one in (fitted, now)]
        words = ["no transform of the factory" if name is None else f"the transform {name}" for name in names]
        raise ValueError(
            f"the detector was fitted on images prepared with {words[0]}, got {words[1]}: let the factory return the "
            "one that the detector was fitted with, or fit again"
        )
    for name in ("channels", "resize", "mean", "std"):
        _compare(name, _text(fitted.get(name)), _text(now.get(name)))
    before = pixels_of(fitted)
    after = pixels_of(now)
    if before is None or after is None or before == after:
        return
    pixels = [f"{height}×{width}" for height, width in (before, after)]
    if fitted.get("size") is not None or now.get("size") is not None:
        _compare("size", *pixels)
    message = (
        f"the first image has {pixels[1]} pixels (height × width), that of the training set {pixels[0]}, and neither "
        f"is resized: a size makes them alike, as in --size {before[0]}"
    )
    warnings.warn(message, PreparationWarning, stacklevel=3)


def pixels_of(record: Record) -> tuple[int, int] | None:
    """Return the height and width of prepared images; None where they are not known."""
    if record.get("size") is not None:
        return record["size"], record["size"]
    shape = record.get("shape")
    return None if shape is None else (shape[0], shape[1])


def describe_preparation(record: Record) -> str:
    """Return a line that says how images are prepared, or which columns hold the embeddings.

    >>> describe_preparation({"channels": "RGB", "size": 32, "mean": [0.5], "std": [0.2, 0.3, 0.2]})
    'RGB, resized to 32×32 pixels, scaled to [0, 1], mean 0.5, std 0.2,0.3,0.2'
    """
    if "columns" in record:
        return list_names(record["columns"])
    if record.get("transform") is not None:
        return f"{record['channels']}, then the transform of the model's factory: {record['transform']}"
    pixels = pixels_of(record)
    sized = "not resized"
    if pixels is not None:
        sized = "not resized, the first has" if record["size"] is None else "resized to"
        sized += f" {pixels[0]}×{pixels[1]} pixels"
    values = f"mean {_text(record['mean'])}, std {_text(record['std'])}"
    return f"{record['channels']}, {sized}, scaled to [0, 1], {values}"


def _compare(name: str, before: str, after: str) -> None:
    if before != after:
        raise ValueError(
            f"the detector was fitted on images prepared with {name} {before}, got {name} {after}: leave it out to "
            "prepare images as then, or fit again with it"
        )


def _text(value: Any) -> str:
    """Return a value as text; numbers of channels as an option takes them, one for all that are the same."""
    if not isinstance(value, (list, tuple)):
        return str(value)
    return ",".join(f"{number:.15g}" for number in (value[:1] if len(set(value)) == 1 else value))
