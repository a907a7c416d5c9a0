"""Images and the model that embeds them, as one stream of embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.io.decode import UndecodableError, read_image
from pnml.io.fingerprint import digest_rows
from pnml.io.source import Chunk, Samples

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from pnml.io.decode import Encoded
    from pnml.io.preparation import Preparation
    from pnml.pytorch.guard import Guard
    from pnml.pytorch.recording import Outputs


@dataclass(frozen=True)
class EmbeddedImages(Samples):
    """Images that a guarded model turns into embeddings; a chunk is one batch.

    Attributes:
        preparation: the processing of an image before the model.
        guard: around the model; its head and layers are found, or checked if they are named, with the first batch.
        strict: raise for an image that does not decode, instead of skipping it.
        model: identifies the model in fingerprints.
    """

    preparation: Preparation
    guard: Guard
    strict: bool
    model: dict[str, Any]

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The names of the layers that the guard watches; known after the first batch."""
        return self.guard.layers

    @property
    def preparation_record(self) -> dict[str, Any]:
        """The processing, with the shape of the first image that decodes where images keep their size."""
        record = self.preparation.record()
        if record.get("size", ...) is None:
            images = (image for _, batch in self.reader.read(0, self.chunk_rows) for image in batch)
            record["shape"] = next((shape for shape in map(_shape_of, images) if shape is not None), None)
        return record

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        """Yield the embeddings and features of the images from number ``start`` on."""
        for ids, encoded in self.reader.read(start, self.chunk_rows):
            images = self.preparation.decode(encoded, strict=self.strict)
            kept = np.array([row for row, image in enumerate(images) if image is not None], dtype=np.int64)
            skipped = tuple(str(name) for name in np.delete(ids, kept))
            positions = start + kept
            start += len(ids)
            batch = [image for image in images if image is not None]
            digest = partial(digest_rows, ids, encoded)
            if batch:
                outputs = self._run(batch)
                if outputs.places is not None:
                    raise ValueError(f"the model has answers of shape {outputs.places}: expected one per image")
                features = tuple(outputs.features)
                embeddings = outputs.embeddings
                yield Chunk(start, positions, ids[kept], embeddings, outputs.logits, skipped, features, digest)
            else:
                yield Chunk(start, positions, ids[kept], np.empty((0, 0)), skipped=skipped, digest=digest)

    def fingerprint(self) -> dict[str, Any]:
        """Return what identifies the images, their processing and the model."""
        return {
            "input": self.reader.fingerprint(),
            "preparation": self.preparation.record(),
            "model": self.model,
            "strict": self.strict,
        }

    def _run(self, images: list[Tensor]) -> Outputs:
        import torch

        from pnml.pytorch.head import HeadNotFoundError
        from pnml.pytorch.layers import LayersNotFoundError

        try:
            batch = self.preparation.batch(images)
        except ValueError as error:
            raise ValueError(f"{self.path}: {error}") from error
        reference = next(self.guard.model.parameters(), batch)
        batch = batch.to(reference.device, reference.dtype)
        try:
            return self.guard.run((batch,))
        except HeadNotFoundError as error:
            names_fix = "pnml.guard(model, head='" in str(error)
            hint = "\nOn the command line: pnml fit --head-layer NAME" if names_fix else ""
            raise ValueError(f"{error}{hint}") from error
        except LayersNotFoundError as error:
            raise ValueError(f"{error}\nOn the command line: pnml fit --layers last") from error
        except torch.OutOfMemoryError:
            raise
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"the model fails on a batch of shape {tuple(batch.shape)}: {error}") from error


def _shape_of(encoded: Encoded) -> list[int] | None:
    """Return height and width of an image; None where it does not decode."""
    try:
        return list(read_image(encoded).shape[:2])
    except UndecodableError:
        return None
