"""The last linear layer of a classifier as a weight and a bias: checks and a fingerprint."""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np

from pnml.backend.arrays import Array, as_array, to_numpy
from pnml.backend.rows import check_rows


def checked_head(weight: Array, bias: Array | None) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return weight (C, M) and bias (C,) of any array library as NumPy arrays in float64; no bias is one of zeros.

    >>> weight, bias = checked_head([[1, 0, 0], [0, 1, 0]], None)
    >>> weight.shape, bias
    ((2, 3), array([0., 0.]))
    """
    weight = check_rows(to_numpy(as_array(weight)), None)
    if len(weight) < 2:
        raise ValueError(
            f"expected at least two classes, got weight of shape {weight.shape}. If its one row scores the second of "
            "two classes, pass both: np.vstack([np.zeros_like(weight), weight]) and np.append(0, bias)"
        )
    bias = np.zeros(len(weight)) if bias is None else to_numpy(as_array(bias))
    if bias.shape != (len(weight),):
        turned = ": pass weight.T" if bias.shape == (weight.shape[1],) else ""
        raise ValueError(
            f"bias must have one entry per class, {len(weight)}, the rows of weight, got shape {bias.shape}{turned}"
        )
    if not np.isfinite(bias).all():
        raise ValueError(f"bias holds {bias[~np.isfinite(bias)][0]}: every value must be finite")
    return weight, bias


def head_digest(weight: Array, bias: Array) -> str:
    """Fingerprint a last layer by its float32 values.

    >>> head_digest(np.eye(2), np.zeros(2)) == head_digest(np.eye(2, dtype=np.float32), np.zeros(2))
    True
    """
    digest = hashlib.sha256()
    for values in (weight, bias):
        digest.update(np.ascontiguousarray(to_numpy(values, "<f4")).tobytes())
    return digest.hexdigest()
