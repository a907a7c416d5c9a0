"""The pNML regret as a method of its own: the default, the default without earlier layers, and that of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from pnml.core.detector import Detector
from pnml.core.profile import LEVEL, SLOPE
from pnml_bench.methods.protocol import Method

if TYPE_CHECKING:
    from torch import Tensor

    from pnml.core.scaling import EmbeddingScale
    from pnml.pytorch.contract import Layer
    from pnml_bench.methods.view import View


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
