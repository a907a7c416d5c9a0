"""The pNML regret as a method of its own, one class per embedding scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pnml.bench.methods.protocol import Method
from pnml.core.detector import Detector

if TYPE_CHECKING:
    from torch import Tensor

    from pnml.bench.methods.view import View
    from pnml.core.scaling import EmbeddingScale


class Regret(Method):
    """The pNML regret in nats, computed by a detector of its own so that the time to fit it is measured.

    Attributes:
        embedding_scale: that of its :class:`~pnml.Detector`.
    """

    composes = False
    embedding_scale: ClassVar[EmbeddingScale]

    def fit(self, train: View, detector: Detector) -> Regret:
        """Fit a new detector on the training embeddings; ``detector`` is not used."""
        del detector
        head = train.network.head
        self.detector = Detector(head.weight.detach(), head.bias.detach(), embedding_scale=self.embedding_scale)
        self.detector.fit(train.embeddings)
        _ = self.detector.subspace, self.detector.embedding_length  # both are computed on first access
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The embedding scale, the embedding length and the label noise."""
        return {
            "embedding_scale": self.embedding_scale,
            "embedding_length": self.detector.embedding_length,
            "label_noise": self.detector.label_noise,
        }

    def score(self, view: View) -> Tensor:
        """Return the regret of every image in nats, shape (n,)."""
        regret: Tensor = self.detector.score(view.embeddings)
        return regret


class AutoRegret(Regret):
    """The regret with the default embedding scale of :class:`~pnml.Detector`."""

    name = "pnml"
    embedding_scale = "auto"


class PaperRegret(Regret):
    """The regret as in the paper: embeddings of norm 1."""

    name = "pnml-paper"
    embedding_scale = "paper"
