"""How long an embedding is allowed to be before the theorem is applied to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, get_args

import array_api_compat as compat

from pnml._rows import row_norms

if TYPE_CHECKING:
    from pnml._arrays import Array

EmbeddingScale = Literal["paper", "natural"]
"""``"paper"``: every embedding has norm 1, as in the paper. ``"natural"``: embeddings stay as they are."""

EMBEDDING_SCALES: tuple[str, ...] = get_args(EmbeddingScale)


def row_scale(x: Array, embedding_scale: EmbeddingScale) -> Array:
    """Give the factor each row (n, M) is multiplied by, shape (n,); 0 for a row without length or direction."""
    xp = compat.array_namespace(x)
    norms = row_norms(x)
    if embedding_scale == "natural":
        return xp.ones_like(norms)
    return xp.where(norms > 0, 1 / xp.where(norms > 0, norms, xp.ones_like(norms)), xp.zeros_like(norms))
