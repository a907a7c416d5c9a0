"""pNML for code that is written for pytorch-ood: a detector with that package's interface.

Replace ``from pytorch_ood.detector import PNML`` by ``from pnml.integrations.pytorch_ood import PNML``; the rest stays.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pnml.core.detector import Detector
from pnml.integrations._import import import_pytorch_ood
from pnml.integrations._learn import learn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pnml.core.scaling import EmbeddingScale

_api = import_pytorch_ood("pnml.integrations.pytorch_ood").api
_FeaturesDetector = _api.FeaturesDetector


class PNML(_FeaturesDetector):  # type: ignore[misc, valid-type]  # the package has no types
    """The pNML regret in nats as a detector of pytorch-ood: larger = more out-of-distribution.

    What its own PNML gives is divided by log C and comes from a float32 inverse, which cuts off directions of small
    eigenvalues; this one sums and decomposes in float64, and keeps no more than Σxxᵀ of the training features.

    Args:
        encoder: maps inputs to features (B, M). It may be None where only features are given.
        head: the last linear layer, from features to logits.
        embedding_scale: as of :class:`pnml.Detector`.

    Attributes:
        detector: the :class:`pnml.Detector` inside, None before fitting; it can be calibrated and saved.

    >>> features, labels = torch.randn(100, 8, generator=torch.Generator().manual_seed(0)), torch.zeros(100)
    >>> pnml = PNML(encoder=None, head=nn.Linear(8, 3)).fit_features(features, labels)
    >>> pnml.predict_features(features).shape
    torch.Size([100])
    """

    requires_fit = True
    info = _api.DetectorInfo(
        paper=_api.Paper(
            title="Single Layer Predictive Normalized Maximum Likelihood for Out-of-Distribution Detection",
            venue="NeurIPS",
            year=2021,
            url="https://arxiv.org/abs/2110.09246",
            code="https://github.com/kobybibas/pnml_ood_detection",
        ),
        tasks={_api.Task.CLASSIFICATION},
    )

    def __init__(
        self,
        encoder: Callable[[Tensor], Tensor] | None,
        head: nn.Linear,
        *,
        embedding_scale: EmbeddingScale = "auto",
    ) -> None:
        if not isinstance(head, nn.Linear):
            raise TypeError(
                f"head is a {type(head).__name__}: give the model's last nn.Linear itself, whose weight and bias the "
                "regret needs, as PNML(encoder=model.features, head=model.fc)"
            )
        self.encoder = encoder
        self.head = head
        self.embedding_scale = embedding_scale
        self.detector: Detector | None = None

    def fit(self, data_loader: Iterable[tuple[Tensor, Tensor]]) -> PNML:
        """Learn from a loader of (input, label) batches in one streaming pass; labels below 0 are left out."""
        encoder = self._encoder()
        with torch.no_grad():
            known = (x[y >= 0].to(self.device) for x, y in data_loader)
            self.detector = learn(self._new_detector(), (encoder(x).flatten(1) for x in known if len(x)))
        return self

    def fit_features(self, x: Tensor, y: Tensor) -> PNML:
        """Learn from features (N, M); those with labels (N,) below 0 are left out."""
        self.detector = learn(self._new_detector(), [x[y >= 0].detach().to(self.device)])
        return self

    def predict(self, x: Tensor) -> Tensor:
        """Give the regret of inputs, shape (B,)."""
        encoder = self._encoder()
        with torch.no_grad():
            return self.predict_features(encoder(x.to(self.device)).flatten(1))

    def predict_features(self, x: Tensor) -> Tensor:
        """Give the regret of features (B, M), shape (B,)."""
        if self.detector is None:
            raise _api.RequiresFittingException
        scores: Tensor = self.detector.score(x.detach())
        return scores

    def _encoder(self) -> Callable[[Tensor], Tensor]:
        if self.encoder is None:
            raise _api.ModelNotSetException
        return self.encoder

    def _new_detector(self) -> Detector:
        return Detector(self.head.weight, self.head.bias, embedding_scale=self.embedding_scale)
