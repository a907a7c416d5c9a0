"""What a forward pass of a guarded model gave: logits, embeddings and the features of layers."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from pnml.pytorch.layers import LayersNotFoundError
from pnml.pytorch.pooling import join

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml.pytorch.layers import Layer
    from pnml.pytorch.pooling import Parts


class Outputs(NamedTuple):
    """What a forward pass of a guarded model gave.

    Attributes:
        logits: shape (n, C).
        embeddings: what entered the head, shape (n, M).
        parts: the features of earlier layers, each in parts that stand side by side.
        places: the shape of the answers where every token or pixel has one, (samples, T) or (samples, H, W), whose
            product is n; None where every sample has one.
        counts: which of these n count, (n,), where a mask of tokens says so; None where all do.
    """

    logits: Tensor
    embeddings: Tensor
    parts: list[Parts]
    places: tuple[int, ...] | None = None
    counts: Tensor | None = None

    @property
    def widths(self) -> list[int]:
        """How many features each of the earlier layers has."""
        return [sum(part.shape[1] for part in parts) for parts in self.parts]

    @property
    def features(self) -> list[Tensor]:
        """The features of earlier layers, shape (n, features of that layer) each."""
        return [join(parts) for parts in self.parts]

    @property
    def rows(self) -> Tensor:
        """The embeddings, followed by the features of earlier layers, joined by one call."""
        return torch.cat([self.embeddings, *chain.from_iterable(self.parts)], dim=1) if self.parts else self.embeddings

    def counting(self) -> Outputs:
        """Return what is to be learnt from: padding is left out."""
        if self.counts is None:
            return self
        return Outputs(self.logits[self.counts], self.embeddings[self.counts], [])


def checked_parts(layers: Sequence[Layer], pooled: Sequence[Parts | None], count: int) -> list[Parts]:
    """Return the pooled outputs of layers; raise :class:`LayersNotFoundError` where one has no row per sample."""
    found = [parts for parts in pooled if parts is not None and parts[0].shape[0] == count]
    if len(found) < len(layers):
        bad = [str(name) for name, x in zip(layers, pooled, strict=True) if x is None or x[0].shape[0] != count]
        raise LayersNotFoundError(
            f"layers {bad} did not put out one entry per sample in a forward pass, as they did in the first one: "
            "name others, pnml.guard(model, layers=[...]), or take layers='last'",
            bad,
        )
    return found
