"""What flows from files to the detector: chunks of embeddings that know which rows of their file they are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import to_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pnml.backend.arrays import Array
    from pnml.io.paths import PathOrUri


@dataclass(frozen=True)
class Chunk:
    """Consecutive samples of a file.

    Attributes:
        stop: the row of the file after the last one looked at.
        positions: which rows of the file the embeddings are, counted from 0, shape (n,).
        ids: what the file calls them, or their positions, shape (n,).
        embeddings: shape (n, M); n is 0 when every image of the chunk was skipped.
        logits: the model's own, shape (n, C), where a model ran.
        skipped: what the file calls the images that did not decode.
    """

    stop: int
    positions: NDArray[np.int64]
    ids: NDArray[Any]
    embeddings: Array
    logits: Array | None = None
    skipped: tuple[str, ...] = ()


class Samples(Protocol):
    """Embeddings in a file, or images and the model that embeds them: read in order, a chunk at a time."""

    @property
    def path(self) -> PathOrUri:
        """The file or folder read."""

    @property
    def count(self) -> int:
        """How many samples it holds."""

    @property
    def chunk_rows(self) -> int:
        """How many of them a chunk covers; the last one may cover fewer."""

    @property
    def starts(self) -> tuple[int, ...]:
        """The rows from which reading can begin without reading what comes before; any row when empty."""

    def chunks(self, start: int = 0) -> Iterator[Chunk]:
        """Yield the samples from row ``start`` on."""

    def fingerprint(self) -> dict[str, Any]:
        """Say what is read and how, so that a change between two runs is noticed."""


def check(chunk: Chunk, path: PathOrUri, n_features: int | None, *, unit_norm: bool = False) -> Chunk:
    """Return the chunk if a detector can use it; name the first row that it cannot use by its place in the file.

    Args:
        chunk: as read.
        path: where it was read from, for the message.
        n_features: the width it must have; any when None.
        unit_norm: refuse rows without length, which cannot be scaled to norm 1.
    """
    x = chunk.embeddings
    if n_features is not None and len(chunk.ids) and x.shape[1] != n_features:
        raise ValueError(
            f"{path} has embeddings of {x.shape[1]} features, the head takes {n_features}: they are of another layer "
            "or another network"
        )
    xp = compat.array_namespace(x)
    finite = to_numpy(xp.isfinite(x), bool)
    if not finite.all():
        row, column = np.argwhere(~finite)[0]
        raise ValueError(f"{_named(chunk, path, row)} holds {float(x[row, column])} in column {column}: repair it")
    if unit_norm:
        empty = ~to_numpy(x != 0, bool).any(axis=1)
        if empty.any():
            raise ValueError(
                f"{_named(chunk, path, int(empty.argmax()))} is all zeros and cannot be scaled to norm 1: leave it out"
            )
    return chunk


def _named(chunk: Chunk, path: PathOrUri, row: int) -> str:
    position, name = chunk.positions[row], chunk.ids[row]
    called = "" if name == position else f" (id {name})"
    return f"row {position} of {path}, counted from 0{called},"
