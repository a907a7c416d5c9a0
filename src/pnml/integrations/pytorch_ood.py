"""A detector with the interface of pytorch-ood.

Replace ``from pytorch_ood.detector import PNML`` by ``from pnml.integrations.pytorch_ood import PNML``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from pnml.core.detector import Detector
from pnml.integrations._fit import fit_batches
from pnml.integrations._import import import_pytorch_ood

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from pnml.core.scaling import EmbeddingScale

_api = import_pytorch_ood("pnml.integrations.pytorch_ood").api
_FeaturesDetector = _api.FeaturesDetector


class PNML(_FeaturesDetector):  # type: ignore[misc, valid-type]  # the package has no types
    """The pNML regret in nats as a detector of pytorch-ood: larger = more out-of-distribution.

    The PNML of pytorch-ood divides the regret by log C and computes it from a float32 inverse, which ignores directions
    of small eigenvalues. This class computes in float64 and stores only Σxxᵀ of the training features.

    Args:
        encoder: maps inputs to features (B, M); None if only features are scored.
        head: the last linear layer, which maps features to logits.
        embedding_scale: that of :class:`pnml.Detector`.

    Attributes:
        detector: the :class:`pnml.Detector`, None before fitting; it can be calibrated and saved.

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
                f"head is a {type(head).__name__}: expected the last nn.Linear of the model, as in "
                "PNML(encoder=model.features, head=model.fc)"
            )
        self.encoder = encoder
        self.head = head
        self.embedding_scale = embedding_scale
        self.detector: Detector | None = None

    def fit(self, data_loader: Iterable[tuple[Tensor, Tensor]]) -> PNML:
        """Fit on a loader of (input, label) batches in one pass, without samples of negative label."""
        encoder = self._encoder()
        with torch.no_grad():
            known = (x[y >= 0].to(self.device) for x, y in data_loader)
            self.detector = fit_batches(self._new_detector(), (encoder(x).flatten(1) for x in known if len(x)))
        return self

    def fit_features(self, x: Tensor, y: Tensor) -> PNML:
        """Fit on features (N, M), without samples of negative label (N,)."""
        self.detector = fit_batches(self._new_detector(), [x[y >= 0].detach().to(self.device)])
        return self

    def predict(self, x: Tensor) -> Tensor:
        """Return the regret of inputs, shape (B,)."""
        encoder = self._encoder()
        with torch.no_grad():
            return self.predict_features(encoder(x.to(self.device)).flatten(1))

    def predict_features(self, x: Tensor) -> Tensor:
        """Return the regret of features (B, M), shape (B,)."""
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
