"""The regret as a method of its own, to stand in one table with others; one class for each embedding scale."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pnml.bench.methods.protocol import Method
from pnml.core.detector import Detector

if TYPE_CHECKING:
    from torch import Tensor

    from pnml.bench.methods.view import View
    from pnml.core.scaling import EmbeddingScale


class Regret(Method):
    """The pNML regret in nats, from a detector of its own: what it takes to fit it is seen.

    Attributes:
        embedding_scale: that of its :class:`~pnml.Detector`.
    """

    composes = False
    embedding_scale: ClassVar[EmbeddingScale]

    def fit(self, train: View, detector: Detector) -> Regret:
        """Fit a detector on the training embeddings; the one given is not used."""
        del detector
        head = train.network.head
        made = Detector(head.weight.detach(), head.bias.detach(), embedding_scale=self.embedding_scale)
        self.detector = made.fit(train.embeddings)
        _ = self.detector.subspace, self.detector.embedding_length
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The scale of the embeddings, the length it gives them, and the label noise it allows for."""
        return {
            "embedding_scale": self.embedding_scale,
            "embedding_length": self.detector.embedding_length,
            "label_noise": self.detector.label_noise,
        }

    def score(self, view: View) -> Tensor:
        """Give the regret of every image in nats, shape (n,)."""
        regret: Tensor = self.detector.score(view.embeddings)
        return regret


class AutoRegret(Regret):
    """The regret at the length that balances direction and doubt, the default of :class:`~pnml.Detector`."""

    name = "pnml"
    embedding_scale = "auto"


class PaperRegret(Regret):
    """The regret as in the paper: embeddings of norm 1."""

    name = "pnml-paper"
    embedding_scale = "paper"
