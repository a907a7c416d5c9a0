"""Rows of several layers: the embedding, followed by the features of earlier layers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import Array, as_array, like, namespace, to_numpy, working_dtype
from pnml.backend.rows import check_finite, check_shape

if TYPE_CHECKING:
    from collections.abc import Sequence


def as_layers(features: Sequence[Array] | None) -> list[Array]:
    """Return the features of earlier layers as floating-point arrays (n, features), none if there are none."""
    if hasattr(features, "shape") or hasattr(features, "keys"):
        fix = "[x]" if hasattr(features, "shape") else "list(x.values()), in the order of the fit"
        raise ValueError(f"features must be a list of arrays, one for each layer, got {type(features).__name__}: {fix}")
    return [_checked_layer(layer, number) for number, layer in enumerate(features or ())]


def _checked_layer(layer: Array, number: int) -> Array:
    try:
        return check_shape(layer, None)
    except ValueError as error:
        pool = "; pool pixels or tokens to means and standard deviations" if np.ndim(layer) > 2 else ""
        raise ValueError(f"features[{number}]: {error}{pool}") from None


def join_layers(embeddings: Array, features: Sequence[Array]) -> Array:
    """Return embeddings (n, M) and the features of earlier layers, (n, features) each, as rows of one array.

    Features are converted to the library and device of the embeddings.

    >>> import numpy as np
    >>> join_layers(np.zeros((2, 3)), [np.ones((2, 1)), np.ones((2, 4))]).shape
    (2, 8)
    """
    if not features:
        return embeddings
    xp = namespace(embeddings)
    layers, home = [embeddings], getattr(embeddings, "device", None)  # older NumPy has none
    for number, layer in enumerate(features):
        if layer.shape[0] != embeddings.shape[0]:
            raise ValueError(
                f"features[{number}] has {layer.shape[0]} rows, where there are {embeddings.shape[0]} embeddings"
            )
        at_home = type(layer) is type(embeddings) and getattr(layer, "device", None) == home
        layers.append(layer if at_home else like(embeddings, to_numpy(layer)))
    dtype = working_dtype(xp, *layers)
    return xp.concat([layer if layer.dtype == dtype else xp.astype(layer, dtype) for layer in layers], axis=1)


def checked_logits(logits: Array | None, count: int, columns: int) -> Array | None:
    """Return logits of a model as an array; raise ``ValueError`` unless they have a row a sample and these columns."""
    if logits is None:
        return None
    logits = as_array(logits)
    if tuple(logits.shape) != (count, columns):
        raise ValueError(f"expected logits of shape {(count, columns)}, a column per class, got {tuple(logits.shape)}")
    return logits


def check_scored(scores: Array, embeddings: Array, features: Sequence[Array] | None = None) -> None:
    """Raise ``ValueError`` that names the first row that is not finite, if one of its scores (n,) is no number."""
    xp = namespace(scores)
    if bool(xp.any(xp.isnan(scores))):
        layers = [check_shape(embeddings, None), *as_layers(features)]
        check_finite(join_layers(layers[0], layers[1:]), [int(layer.shape[1]) for layer in layers])


def check_features(widths: Sequence[int], fitted: Sequence[int]) -> None:
    """Raise ``ValueError`` unless features have the widths of those that the detector was fitted with."""
    if tuple(widths) != tuple(fitted):
        there = f"features of {len(fitted)} earlier layers, of widths {list(fitted)}" if fitted else "embeddings alone"
        given = f"features of widths {list(widths)}" if len(widths) else "none"
        fix = "pass features=[...] as to fit" if fitted else "leave features out, or fit with them"
        raise ValueError(f"the detector was fitted with {there}, and got {given}: {fix}")


def check_names(names: Any, count: int | None) -> None:
    """Raise unless names of layers are different texts, as many as there are features of layers.

    Args:
        names: of the layers.
        count: how many layers there are features of; None while that is not known.
    """
    example = 'expected one for each layer, as in ("block1", "block2")'
    if isinstance(names, str) or not all(isinstance(name, str) and name for name in names):
        raise TypeError(f"layer_names are {names!r}: {example}")
    if len(set(names)) < len(names):
        raise ValueError(f"layer_names {list(names)} has a name twice: name every layer once")
    if count is not None and len(names) != count:
        raise ValueError(f"got {len(names)} layer_names, {list(names)}, for features of {count} layers: {example}")
