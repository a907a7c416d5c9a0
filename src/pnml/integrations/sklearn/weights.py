"""Weights of training rows: a row of weight w counts as w rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _check_sample_weight, has_fit_parameter

from pnml.backend.arrays import unmasked

Matrix = np.ndarray[Any, Any]

_MOST_COPIES = 10  # on average, that a detector is fitted on


def checked_weights(sample_weight: Any, X: Any) -> Matrix | None:
    """Return the weights of rows as an array (N,) of numbers not below 0; None where there are none."""
    if sample_weight is None:
        return None
    weights = np.asarray(_check_sample_weight(unmasked(sample_weight), X, dtype=np.float64, ensure_non_negative=True))
    if not weights.any():
        raise ValueError("sample_weight is 0 for every row: expected at least one row of positive weight")
    return weights


def fit_arguments(model: Any, weights: Matrix | None) -> dict[str, Matrix]:
    """Return the arguments of ``model.fit`` that carry the weights, for a pipeline those of its last step."""
    if weights is None:
        return {}
    name, last = model.steps[-1] if isinstance(model, Pipeline) else ("", model)
    if not has_fit_parameter(last, "sample_weight"):
        raise ValueError(
            f"fit of {type(last).__name__} takes no sample_weight: leave sample_weight out, or take a model that does, "
            "such as LogisticRegression"
        )
    routed = not name or get_config()["enable_metadata_routing"]
    return {"sample_weight" if routed else f"{name}__sample_weight": weights}


def counts_of(weights: Matrix | None) -> Matrix | None:
    """Return how often the detector is fitted on each row, by its weight (N,); None for once each.

    Whole numbers are taken as they are. Others, and large ones, are shares of N rows: the total up to a row is rounded.

    >>> counts_of(np.array([2.0, 0.0, 1.0])), counts_of(np.array([0.2, 0.1, 0.1, 0.4]))
    (array([2, 0, 1]), array([1, 0, 1, 2]))
    """
    if weights is None:
        return None
    total = weights.sum()
    if (weights % 1).any() or total > _MOST_COPIES * len(weights):
        weights = weights * (len(weights) / total)
    return np.diff(np.round(np.cumsum(weights)), prepend=0).astype(np.int64)
