"""Images and the model that embeds them, as one stream of embeddings."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.io.chunk import Chunk

if TYPE_CHECKING:
    from collections.abc import Iterator

    import torch

    from pnml.io.images import Images
    from pnml.io.paths import PathOrUri
    from pnml.io.preparation import Preparation
    from pnml.pytorch.guard import Guard


@dataclass(frozen=True)
class EmbeddedImages:
    """Images that a guarded model turns into embeddings, a batch at a time.

    Attributes:
        images: where they are.
        preparation: what happens to them before the model sees them.
        guard: around the model; its head is found, or checked if it is named, with the first batch.
        chunk_rows: the batch size.
        strict: an image that does not decode is an error; it is skipped otherwise.
        made_by: says which model it is.
    """

    images: Images
    preparation: Preparation
    guard: Guard
    chunk_rows: int
    strict: bool
    made_by: dict[str, Any]

    @property
    def path(self) -> PathOrUri:
        """Where the images are."""
        return self.images.path

    @property
    def count(self) -> int:
        """How many there are, those that do not decode included."""
        return self.images.count

    @property
    def starts(self) -> tuple[int, ...]:
        """The images from which reading can begin without reading what comes before; any when empty."""
        return self.images.starts

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        """Yield the embeddings of the images from number ``start`` on."""
        first_batch = True
        for ids, encoded in self.images.read(start, self.chunk_rows):
            pictures = self.preparation.decode(encoded, strict=self.strict)
            kept = np.array([row for row, picture in enumerate(pictures) if picture is not None], dtype=np.int64)
            skipped = tuple(str(name) for name in np.delete(ids, kept))
            first, start = start, start + len(ids)
            batch = [picture for picture in pictures if picture is not None]
            if batch:
                logits, embeddings = self._run(self.preparation.batch(batch), first=first_batch)
                first_batch = False
                yield Chunk(start, first + kept, ids[kept], embeddings, logits, skipped)
            else:
                yield Chunk(start, first + kept, ids[kept], np.empty((0, 0)), skipped=skipped)

    def fingerprint(self) -> dict[str, Any]:
        """Say which images are read, how, and by which model."""
        return {
            "input": self.images.fingerprint(),
            "preparation": self.preparation.fingerprint(),
            "model": self.made_by,
            "strict": self.strict,
        }

    def _run(self, batch: torch.Tensor, *, first: bool) -> tuple[torch.Tensor, torch.Tensor]:
        from pnml.pytorch.head import HeadNotFoundError, find_head, unwrapped

        reference = next(self.guard.model.parameters(), batch)
        batch = batch.to(reference.device, reference.dtype)
        try:
            with self.guard.eval_no_grad():
                if first:
                    self.guard.head_name = find_head(unwrapped(self.guard.model), (batch,), named=self.guard.head_name)
                return self.guard.run((batch,), {})
        except HeadNotFoundError as error:
            raise ValueError(f"{error}\nOn the command line: pnml fit --head-layer NAME") from error
        except (RuntimeError, TypeError, ValueError) as error:
            raise ValueError(f"the model fails on a batch of shape {tuple(batch.shape)}: {error}") from error
