"""The pNML regret as a method of its own: the default, that of the embedding alone, that of the paper, and its code's.

The published code sums and inverts the correlation of unit-norm embeddings in float32, by a pseudo-inverse that cuts
singular values below 1e-15 of the largest: none, as rounding in float32 is 1e-7 of it. Directions that the training set
hardly has get a leverage made of rounding, which may be negative, so its absolute value is taken. There is no second
branch for embeddings outside of the span.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch.nn.functional import normalize

from pnml.core import theorem
from pnml.core.detector import Detector
from pnml.core.profile import LEVEL, SLOPE
from pnml.core.subspace import xtg
from pnml_bench.methods.protocol import Method

if TYPE_CHECKING:
    from torch import Tensor

    from pnml.core.scaling import EmbeddingScale
    from pnml.pytorch.contract import Layer
    from pnml_bench.methods.view import View


_RCOND = 1e-15


class PublishedLeverage:
    """|xᵀPx| with P the pseudo-inverse in float32 of Σxxᵀ of some rows (N, M).

    >>> PublishedLeverage(torch.tensor([[1.0, 0.0], [0.0, 2.0]])).leverage(torch.tensor([[0.0, 2.0]]))
    tensor([1.])
    """

    def __init__(self, rows: Tensor) -> None:
        rows = rows.float()
        self._inverse = torch.linalg.pinv((rows.T @ rows).cpu(), rtol=_RCOND).to(rows.device)

    def leverage(self, x: Tensor) -> Tensor:
        """Return the leverage of every row of x (n, M), shape (n,), in float32; finite for every row."""
        x = x.float()
        leverage: Tensor = ((x @ self._inverse) * x).sum(dim=1).abs()
        return leverage


class PublishedDetector:
    """What methods use of a :class:`~pnml.Detector` with ``embedding_scale="paper"``, by the published arithmetic.

    Args:
        weight: of the last layer, shape (C, M).
        bias: shape (C,).
        embeddings: of the training set, shape (N, M).
    """

    def __init__(self, weight: Tensor, bias: Tensor, embeddings: Tensor) -> None:
        self._weight, self._bias = weight.double(), bias.double()
        self.subspace = PublishedLeverage(normalize(embeddings, dim=1))

    def score(self, embeddings: Tensor) -> Tensor:
        """Return the regret of every embedding in nats, shape (n,), in float64."""
        unit = normalize(embeddings, dim=1)
        log_p = (unit.double() @ self._weight.T + self._bias).log_softmax(dim=1)
        regret: Tensor = theorem.regret(log_p, xtg(self.subspace.leverage(unit).double()), log=True)
        return regret


class PublishedRegret(Method):
    """The regret as in the paper, by the arithmetic of the published code."""

    name = "pnml-published"
    composes = False

    def fit(self, train: View) -> PublishedRegret:
        """Fit on the training set."""
        head = train.network.head
        self.published = PublishedDetector(head.weight.detach(), head.bias.detach(), train.embeddings)
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The arithmetic."""
        return {"arithmetic": "published", "rcond": _RCOND}

    def score(self, view: View) -> Tensor:
        """Return the regret of every image in nats, shape (n,)."""
        return self.published.score(view.embeddings)


class Regret(Method):
    """The pNML regret in nats, computed by a detector of its own so that the time to fit it is measured.

    Attributes:
        embedding_scale: that of its :class:`~pnml.Detector`.
        layers: the earlier layers whose features it takes.
    """

    composes, is_regret = False, True
    embedding_scale: ClassVar[EmbeddingScale]
    layers: tuple[Layer, ...] = ()
    detector: Detector

    def fit(self, train: View) -> Regret:
        """Fit a new detector on the training set."""
        if self.needs_features:
            self.layers = train.layers
        head = train.network.head
        self.detector = Detector(head.weight.detach(), head.bias.detach(), embedding_scale=self.embedding_scale)
        self.detector.fit(train.embeddings, features=train.features(self.layers) if self.layers else None)
        _ = self.detector.model  # everything that is computed on first access
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The embedding scale, the embedding length and the label noise; then, for "auto", the layers."""
        settings: dict[str, Any] = {
            "embedding_scale": self.embedding_scale,
            "embedding_length": self.detector.embedding_length,
            "label_noise": self.detector.label_noise,
        }
        if self.layers:
            settings |= {"layers": [str(layer) for layer in self.layers], "level": LEVEL, "slope": SLOPE}
        return settings

    def score(self, view: View) -> Tensor:
        """Return the regret of every image in nats, shape (n,)."""
        features = view.features(self.layers) if self.layers else None
        regret: Tensor = self.detector.score(view.embeddings, features=features)
        return regret


class DeepRegret(Regret):
    """The regret as :func:`pnml.guard` computes it by default: of the embedding and of earlier layers."""

    name = "pnml"
    embedding_scale = "auto"
    needs_features = True


class LastRegret(Regret):
    """The same of the embedding alone, as with ``layers="last"``."""

    name = "pnml-last"
    embedding_scale = "auto"


class PaperRegret(Regret):
    """The regret as in the paper: embeddings of norm 1."""

    name = "pnml-paper"
    embedding_scale = "paper"
