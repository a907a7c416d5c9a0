"""A fitted classifier of scikit-learn, taken apart: what comes before its last layer, and that layer.

Rows stream through the parts in chunks, so a sparse matrix is never made dense as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.preprocessing import StandardScaler
from sklearn.utils import check_array

from pnml.core.detector import Detector
from pnml.core.layout import WIDEST

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Matrix = np.ndarray[Any, Any]

FLOATS = (np.float64, np.float32)

MOST_FEATURES = 5_000
"""The widest layer that is accepted."""

_CHUNK_NUMBERS = 1 << 22  # of a dense chunk of rows, 32 MiB in float64

ACTIVATIONS: dict[str, Callable[[Matrix], Matrix]] = {
    "identity": lambda x: x,
    "logistic": expit,
    "tanh": np.tanh,
    "relu": lambda x: np.maximum(x, 0),
}
"""The activations that ``MLPClassifier`` knows."""


class HiddenLayer(NamedTuple):
    """A hidden layer of a multi-layer perceptron.

    Attributes:
        weight: shape (features in, features out).
        bias: shape (features out,).
        activation: the name of its activation.
    """

    weight: Matrix
    bias: Matrix
    activation: str


@dataclass(eq=False)
class ModelParts:
    """A classifier as transformers, hidden layers and a last layer.

    What enters it is watched as its input, every column in standard deviations from the mean of the training rows. The
    embedding of a linear model is the same in one unit for all columns, so that they stay in proportion, with the
    constant 1, whose weight is the intercept: so no origin matters, and every row has a direction.

    Attributes:
        weight: of the last layer, shape (C, M).
        bias: shape (C,).
        hidden: the hidden layers in their order; none for a linear model.
        transformers: what rows pass before, in their order.
        has_model: whether there is a classifier; without one, all that counts is the distance of rows from the mean.
        scaler: of what passed the transformers, known from :meth:`fit_detector` on.
    """

    weight: Matrix
    bias: Matrix
    hidden: tuple[HiddenLayer, ...] = ()
    transformers: tuple[Any, ...] = ()
    has_model: bool = True
    scaler: StandardScaler = field(default_factory=StandardScaler)

    def __post_init__(self) -> None:
        width = max(self.weight.shape[1], *(len(layer.bias) for layer in self.hidden), 0)
        if width > MOST_FEATURES:
            raise ValueError(
                f"{width} features: expected at most {MOST_FEATURES}, as the leverage of a classifier is taken of "
                f"{WIDEST}, and that of rows alone of all. Reduce them first, with PNMLClassifier around a pipeline "
                "such as make_pipeline(TfidfVectorizer(), TruncatedSVD(200), LogisticRegression())"
            )

    def logits(self, X: Any) -> Matrix:
        """Return the outputs of the last layer for rows, shape (n, C)."""
        return np.concatenate([self._layers(x)[-1] @ self.weight.T + self.bias for x in self._dense(X)])

    def fit_detector(self, X: Any, counts: Matrix | None = None) -> Detector:
        """Return a detector fitted on training rows, each as often as its count in ``counts`` (n,) says."""
        for x in self._dense(X, counts):
            self.scaler.partial_fit(x)
        detector = self._empty_detector()
        for embeddings, features in self.chunks(X, counts):
            detector.partial_fit(embeddings, features=features)
        return detector

    def _empty_detector(self) -> Detector:
        weight, bias = self.weight, self.bias
        if not self.hidden:
            weight = np.column_stack([weight * self._unit, weight @ self.scaler.mean_ + bias])
            bias = np.zeros_like(bias)
        if not self.has_model:
            return Detector(weight, embedding_scale="natural")
        detector = Detector(weight, bias, input_layer=True)
        detector.layer_names = [*(f"hidden {number}" for number in range(1, len(self.hidden))), "input"]
        return detector

    def chunks(self, X: Any, counts: Matrix | None = None) -> Iterator[tuple[Matrix, list[Matrix]]]:
        """Yield the embeddings and the features of rows of any kind that the model takes, chunk by chunk."""
        for x in self._dense(X, counts):
            scaled = self.scaler.transform(x)
            if self.hidden:
                *earlier, embeddings = self._layers(x)[1:]
                yield embeddings, [*earlier, scaled]
            elif self.has_model:
                yield _with_constant((x - self.scaler.mean_) / self._unit).astype(x.dtype), [scaled]
            else:
                yield _with_constant(scaled).astype(x.dtype), []

    @property
    def _unit(self) -> float:
        """The root of the mean variance of the columns."""
        return float(np.sqrt(self.scaler.var_.mean())) or 1.0

    def _dense(self, X: Any, counts: Matrix | None = None) -> Iterator[Matrix]:
        """Yield what passed the transformers, as dense chunks of rows."""
        for transformer in self.transformers:
            X = transformer.transform(X)
        X = check_array(X, accept_sparse="csr", dtype=FLOATS)
        order = np.repeat(np.arange(X.shape[0]), 1 if counts is None else counts)
        length = max(1, _CHUNK_NUMBERS // (X.shape[1] + sum(len(layer.bias) for layer in self.hidden)))
        for start in range(0, len(order), length):
            x = X[order[start : start + length]]
            yield x.toarray() if issparse(x) else x

    def _layers(self, x: Matrix) -> list[Matrix]:
        """Return dense rows and the outputs of the hidden layers for them."""
        layers = [x]
        for layer in self.hidden:
            layers.append(ACTIVATIONS[layer.activation](layers[-1] @ layer.weight + layer.bias))
        return layers


def _with_constant(rows: Matrix) -> Matrix:
    return np.column_stack([rows, np.ones(len(rows))])
