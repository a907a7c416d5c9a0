"""Find the last layer of a fitted classifier of scikit-learn, or say why there is none."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.base import is_classifier
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import Pipeline
from sklearn.utils import resample

from pnml.core.theorem import log_softmax
from pnml.integrations.sklearn.parts import HiddenLayer, Matrix, ModelParts

_CHECKED_ROWS = 256  # of the training set, whose probabilities are computed in both ways
_TOLERANCE = 1e-3  # of a probability; some models compute in float32


def unwrapped(model: Any) -> Any:
    """Return the model inside a ``FrozenEstimator`` or a search such as ``GridSearchCV``: of a fitted one, the best."""
    while isinstance(model, FrozenEstimator) or _is_search(model):
        model = getattr(model, "best_estimator_", model.estimator)
    return model


def _is_search(model: Any) -> bool:
    return hasattr(model, "estimator") and hasattr(model, "refit") and hasattr(model, "error_score")


def take_apart(model: Any) -> ModelParts:
    """Return the parts of a fitted classifier: a linear one, a perceptron, or a pipeline that ends in one.

    >>> from sklearn.linear_model import LogisticRegression
    >>> parts = take_apart(LogisticRegression().fit([[0.0], [1.0]], [0, 1]))
    >>> parts.weight.shape, parts.hidden
    ((2, 1), ())
    """
    if _is_search(model) and not hasattr(model, "best_estimator_"):
        raise ValueError(f"{type(model).__name__} with refit={model.refit} fits no best model: expected refit=True")
    transformers: list[Any] = []
    model = unwrapped(model)
    while isinstance(model, Pipeline):
        if len(model.steps) > 1:
            transformers.append(model[:-1])
        model = unwrapped(model[-1])
    if not is_classifier(model) or not (hasattr(model, "coef_") or isinstance(model, MLPClassifier)):
        raise ValueError(_no_last_layer(model))
    if not hasattr(model, "predict_proba"):
        raise ValueError(
            f"{type(model).__name__} has no predict_proba, and a regret is a regret of probabilities: expected a model "
            'fitted by log-loss, such as LogisticRegression() or SGDClassifier(loss="log_loss")'
        )
    if isinstance(model, MLPClassifier):
        hidden = tuple(
            HiddenLayer(weight, bias, model.activation)
            for weight, bias in zip(model.coefs_[:-1], model.intercepts_[:-1], strict=True)
        )
        weight, bias = model.coefs_[-1].T, model.intercepts_[-1]
    else:
        hidden = ()
        weight = model.coef_.toarray() if issparse(model.coef_) else np.atleast_2d(model.coef_)
        bias = model.intercept_ if getattr(model, "fit_intercept", hasattr(model, "intercept_")) else 0.0
    return _as_parts(model, weight, bias, hidden, tuple(transformers))


def _as_parts(
    model: Any, weight: Matrix, bias: Any, hidden: tuple[HiddenLayer, ...], transformers: tuple[Any, ...]
) -> ModelParts:
    weight, n_classes = np.asarray(weight, dtype=np.float64), len(model.classes_)
    bias = np.broadcast_to(np.asarray(bias, dtype=np.float64), len(weight))
    if n_classes == 2 and len(weight) == 1:  # a single score is the second of two, the first being 0
        weight = np.vstack([np.zeros_like(weight), weight])
        bias = np.append(0.0, bias)
    if len(weight) != n_classes:
        raise ValueError(
            f"the last layer of {type(model).__name__} has {len(weight)} rows: expected one per class, {n_classes} in "
            "total"
        )
    return ModelParts(weight, bias, hidden, transformers)


def _no_last_layer(model: Any) -> str:
    name = type(model).__name__
    if isinstance(model, CalibratedClassifierCV):
        return (
            "estimator is a CalibratedClassifierCV: it averages several calibrated copies of a model, so it has no "
            "single last layer. Pass the model inside it. LogisticRegression needs no calibration of its "
            "probabilities, and calibrate(X_held_out) sets the rate of false alarms"
        )
    return (
        f"estimator is a {name}: expected a classifier that ends in a linear layer, such as LogisticRegression, "
        "MLPClassifier or a pipeline that ends in one of these. PNMLOutlierDetector().fit(X), without an estimator, "
        "ranks rows by their features alone"
    )


def check_probabilities(model: Any, parts: ModelParts, X: Any) -> None:
    """Raise ``ValueError`` unless the model's probabilities follow from its last layer, checked on some rows.

    They are the softmax of its outputs, or, as for ``SGDClassifier`` with more than two classes, their sigmoids divided
    by their sum.
    """
    rows = X if hasattr(X, "shape") or isinstance(X, list) else np.asarray(X)
    count = len(rows) if isinstance(rows, list) else rows.shape[0]
    some = resample(rows, replace=False, n_samples=min(count, _CHECKED_ROWS), random_state=0)
    p, logits = np.asarray(model.predict_proba(some)), parts.logits(some)  # the model complains in its own words
    softmax, sigmoids = log_softmax(logits), log_softmax(-np.logaddexp(0, -logits))
    for log_p in (softmax, sigmoids):
        if p.shape == log_p.shape and np.allclose(p, np.exp(log_p), rtol=0, atol=_TOLERANCE):
            return
    raise ValueError(
        f"predict_proba of {type(unwrapped(model)).__name__} is not the softmax of its last layer: expected a model "
        "with one row of coefficients per class that is fitted by log-loss, such as LogisticRegression()"
    )
