"""Rows of several layers: the embedding, followed by the features of earlier layers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import array_api_compat as compat

from pnml.backend.arrays import Array, as_array, like, namespace, to_numpy, working_dtype
from pnml.backend.rows import check_shape

if TYPE_CHECKING:
    from collections.abc import Sequence


def join_layers(embeddings: Array, features: Sequence[Array] | None) -> Array:
    """Return embeddings (n, M) and the features of earlier layers, (n, features) each, as rows of one array.

    Features are converted to the library and device of the embeddings.

    >>> import numpy as np
    >>> join_layers(np.zeros((2, 3)), [np.ones((2, 1)), np.ones((2, 4))]).shape
    (2, 8)
    """
    if not features:
        return embeddings
    xp = namespace(embeddings)
    layers = [embeddings]
    for number, given in enumerate(features):
        layer = check_shape(given, None)
        if layer.shape[0] != embeddings.shape[0]:
            raise ValueError(
                f"features[{number}] has {layer.shape[0]} rows, where there are {embeddings.shape[0]} embeddings"
            )
        if type(layer) is not type(embeddings) or compat.device(layer) != compat.device(embeddings):
            layer = like(embeddings, to_numpy(as_array(layer)))
        layers.append(layer)
    dtype = working_dtype(xp, *layers)
    return xp.concat([xp.astype(layer, dtype, copy=False) for layer in layers], axis=1)


def check_features(widths: Sequence[int], fitted: Sequence[int]) -> None:
    """Raise ``ValueError`` unless features have the widths of those that the detector was fitted with."""
    if tuple(widths) != tuple(fitted):
        there = f"features of {len(fitted)} earlier layers, of widths {list(fitted)}" if fitted else "embeddings alone"
        given = f"features of widths {list(widths)}" if len(widths) else "none"
        raise ValueError(f"the detector was fitted with {there}, and got {given}: pass features=[...] as to fit")
