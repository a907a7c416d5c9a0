"""Weights of training rows: a row of weight w counts as w rows."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn import get_config
from sklearn.pipeline import Pipeline
from sklearn.utils.validation import _check_sample_weight, has_fit_parameter

from pnml.backend.arrays import unmasked
from pnml.core.detector import FewRowsWarning

Matrix = np.ndarray[Any, Any]


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


def warn_of_few_rows(count: float, n_features: int) -> None:
    """Warn where training rows, or the sum of their weights, do not exceed the features of a linear model."""
    if count <= n_features:
        message = (
            f"{count:g} training rows (the sum of sample_weight, if given) for {n_features} features, the constant "
            "included: nearly every new row counts as unseen, whatever it is. Fit on more rows, or reduce the features "
            "first, with PNMLClassifier around make_pipeline(TruncatedSVD(50), LogisticRegression())"
        )
        warnings.warn(message, FewRowsWarning, stacklevel=4)


def weighted_quantile(values: Matrix, share: float, weights: Matrix | None) -> float:
    """Return the quantile that ``np.quantile`` gives for values (N,) with each repeated as often as its weight says.

    >>> weighted_quantile(np.array([3.0, 1.0]), 0.25, np.array([1, 2])), float(np.quantile([3.0, 1.0, 1.0], 0.25))
    (1.0, 1.0)
    """
    if weights is None:
        return float(np.quantile(values, share))
    order = np.argsort(values)
    ends = np.cumsum(weights[order])
    position = share * max(ends[-1] - 1, 0.0)
    below, above = np.searchsorted(ends, [np.floor(position), np.ceil(position)], side="right")
    low, high = (float(values[order[i]]) for i in (below, above))
    return low + (high - low) * float(position % 1)
