"""A fitted classifier of scikit-learn, taken apart: what comes before its last layer, and that layer.

Rows stream through the parts in chunks, so a sparse matrix is never made dense as a whole.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from scipy.sparse import issparse
from scipy.special import expit
from sklearn.utils import check_array

from pnml.core import theorem
from pnml.core.calibration_scores import CalibrationScores
from pnml.core.detector import Detector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pnml.core.result import Result
    from pnml.core.scaling import EmbeddingScale

Matrix = np.ndarray[Any, Any]

FLOATS = (np.float64, np.float32)

MOST_FEATURES = 5_000
"""The widest layer that is accepted: its correlation takes 0.2 GB, and a minute to decompose."""

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


class Chunk(NamedTuple):
    """Some consecutive rows.

    Attributes:
        rows: which rows they are.
        embeddings: what enters the last layer, shape (k, M).
        features: of earlier hidden layers, each of shape (k, features).
    """

    rows: slice
    embeddings: Matrix
    features: list[Matrix]


@dataclass(frozen=True, eq=False)
class ModelParts:
    """A classifier as transformers, hidden layers and a last layer.

    Attributes:
        weight: of the last layer, shape (C, M), or (C, M + 1) with the intercepts as last column.
        bias: shape (C,); None where the intercepts are in ``weight``.
        has_constant: whether the constant feature 1 is appended to the rows.
        hidden: the hidden layers in their order; none for a linear model.
        transformers: what rows pass before, in their order.
    """

    weight: Matrix
    bias: Matrix | None = None
    has_constant: bool = False
    hidden: tuple[HiddenLayer, ...] = ()
    transformers: tuple[Any, ...] = field(default=())

    def __post_init__(self) -> None:
        width = max(self.weight.shape[1], *(len(layer.bias) for layer in self.hidden), 0)
        if width > MOST_FEATURES:
            raise ValueError(
                f"{width} features have a correlation of {width} x {width} numbers, {8e-9 * width**2:.0f} GB: expected "
                f"at most {MOST_FEATURES}. Reduce them first, with PNMLClassifier around a pipeline such as "
                "make_pipeline(TfidfVectorizer(), TruncatedSVD(200), LogisticRegression())"
            )

    @property
    def embedding_scale(self) -> EmbeddingScale:
        """Features of a linear model are used as they are, hidden layers as those of any deep network."""
        return "auto" if self.hidden else "natural"

    def chunks(self, X: Any) -> Iterator[Chunk]:
        """Yield the embeddings of rows (n, features) of any kind that the model takes, chunk by chunk."""
        for transformer in self.transformers:
            X = transformer.transform(X)
        X = check_array(X, accept_sparse="csr", dtype=FLOATS)
        widest = X.shape[1] + sum(len(layer.bias) for layer in self.hidden)
        length = max(1, _CHUNK_NUMBERS // widest)
        for start in range(0, X.shape[0], length):
            rows = slice(start, min(start + length, X.shape[0]))
            x = X[rows].toarray() if issparse(X) else X[rows]
            *features, embeddings = self._layers(x)
            yield Chunk(rows, embeddings, features)

    def _layers(self, x: Matrix) -> list[Matrix]:
        """Return the outputs of the hidden layers for dense rows, or the rows themselves where there are none."""
        if self.has_constant:
            return [np.hstack([x, np.ones((len(x), 1), dtype=x.dtype)])]
        layers = [x]
        for layer in self.hidden:
            layers.append(ACTIVATIONS[layer.activation](layers[-1] @ layer.weight + layer.bias))
        return layers[1:] or layers

    def logits(self, X: Any) -> Matrix:
        """Return the outputs of the last layer for rows, shape (n, C)."""
        bias = 0 if self.bias is None else self.bias
        return np.concatenate([chunk.embeddings @ self.weight.T + bias for chunk in self.chunks(X)])

    def fit_detector(self, X: Any, weights: Matrix | None = None) -> Detector:
        """Return a detector fitted on training rows; a row of weight w counts as w rows, one of weight 0 as none."""
        if weights is not None and self.hidden:
            raise ValueError(
                "sample_weight of an MLPClassifier cannot weigh the means of its classes: leave sample_weight out, or "
                "repeat rows by whole numbers, X = np.repeat(X, weights, axis=0)"
            )
        detector = Detector(self.weight, self.bias, embedding_scale=self.embedding_scale)
        for chunk in self.chunks(X):
            embeddings = chunk.embeddings
            if weights is not None:
                counted = weights[chunk.rows] > 0
                embeddings = embeddings[counted] * np.sqrt(weights[chunk.rows][counted])[:, None]
            detector.partial_fit(embeddings, features=chunk.features)
        return detector

    def results(self, detector: Detector, X: Any) -> Iterator[Result]:
        """Yield what a detector finds about rows, chunk by chunk."""
        for chunk in self.chunks(X):
            yield detector(chunk.embeddings, features=chunk.features)

    def calibration_scores(self, detector: Detector, X: Any, *, leave_one_out: bool = False) -> CalibrationScores:
        """Return the regrets and predicted classes of rows, or of training rows as if each had not been fitted on."""
        return CalibrationScores.join(
            [
                detector.calibration_scores(chunk.embeddings, features=chunk.features, leave_one_out=leave_one_out)
                for chunk in self.chunks(X)
            ]
        )

    def predictive(self, detector: Detector, X: Any) -> Matrix:
        """Return the pNML probabilities q of rows, from the softmax of the model's own outputs, shape (n, C)."""
        return np.concatenate(
            [
                theorem.predictive(theorem.log_softmax(result.logits), result.xtg, log=True)
                for result in self.results(detector, X)
            ]
        )
