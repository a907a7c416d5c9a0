"""A detector with the interface of pytorch-ood.

Replace ``from pytorch_ood.detector import PNML`` by ``from pnml.integrations.pytorch_ood import PNML``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from pnml.core.detector import Detector
from pnml.integrations._fit import fit_batches, without_layers
from pnml.integrations._import import import_pytorch_ood
from pnml.pytorch.guard import Guard
from pnml.pytorch.models import evaluating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from pnml.core.scaling import EmbeddingScale

_api = import_pytorch_ood("pnml.integrations.pytorch_ood").api
_FeaturesDetector = _api.FeaturesDetector


class PNML(_FeaturesDetector):  # type: ignore[misc, valid-type]  # the package has no types
    """The pNML regret in nats as a detector of pytorch-ood: larger = more out-of-distribution.

    The PNML of pytorch-ood divides the regret by log C and computes it from a float32 inverse, which ignores directions
    of small eigenvalues. This class computes in float64 and stores only Σxxᵀ of the training features.

    An encoder that is a module, or a method of one, is watched in its layers, too. :meth:`predict` then scores inputs
    by all layers, and :meth:`predict_features` by the features alone. The benchmark of pytorch-ood calls the latter of
    every detector with an ``encoder``, so that is None where layers are watched.

    Args:
        encoder: maps inputs to features (B, M); None if only features are scored. A module, or a method of one, is run
            in eval mode, whatever its mode is.
        head: the last linear layer, which maps features to logits.
        layers: "auto" for layers of the encoder as :class:`pnml.Guard` chooses them, "last" for its features alone, or
            names of modules of the encoder.
        embedding_scale: that of :class:`pnml.Detector`.

    Attributes:
        detector: the :class:`pnml.Detector`, None before fitting; it can be calibrated and saved.
        guard: the :class:`pnml.Guard` of encoder and head, None unless layers are watched.

    >>> import torch
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
        layers: str | Sequence[str] = "auto",
        embedding_scale: EmbeddingScale = "auto",
    ) -> None:
        if not isinstance(head, nn.Linear):
            raise TypeError(
                f"head is a {type(head).__name__}: expected the last nn.Linear of the model, as in "
                "PNML(encoder=model.features, head=model.fc)"
            )
        self._encode = encoder
        self.head = head
        self.layers = layers
        self.embedding_scale = embedding_scale
        self.detector: Detector | None = None
        self.guard = self._new_guard()
        self._of_features: Detector | None = None

    @property
    def encoder(self) -> Callable[[Tensor], Tensor] | None:
        """What gives the features that samples are scored by; None where layers are watched, too, or nothing does."""
        return None if self._watches_layers else self._encode

    @property
    def _watches_layers(self) -> bool:
        return self.guard is not None and (self.detector is None or self.guard.detector is self.detector)

    def fit(self, data_loader: Iterable[tuple[Tensor, Tensor]]) -> PNML:
        """Fit on a loader of (input, label) batches in one pass, without samples of negative label."""
        encoder = self._encoder()
        known = (x[y >= 0].to(self.device) for x, y in data_loader)
        inputs = (x for x in known if len(x))
        if self.guard is None:
            with evaluating(self._module()):
                detector = fit_batches(self._new_detector(), (encoder(x).flatten(1) for x in inputs))
            self.detector = self._of_features = detector
        else:
            self.detector = self.guard.fit(inputs, progress=False).fitted()
            self._of_features = self._new_detector().merge(self.detector.correlation.embeddings_alone)
        return self

    def fit_features(self, x: Tensor, y: Tensor) -> PNML:
        """Fit on features (N, M), without samples of negative label (N,)."""
        self.detector = self._of_features = fit_batches(self._new_detector(), [x[y >= 0].detach().to(self.device)])
        return self

    def predict(self, x: Tensor) -> Tensor:
        """Return the regret of inputs, shape (B,)."""
        encoder, x = self._encoder(), x.to(self.device)
        if self.guard is not None and self.detector is not None and self._watches_layers:
            regret: Tensor = self.guard(x).regret
            return regret
        with evaluating(self._module()):
            return self.predict_features(encoder(x).flatten(1))

    def predict_features(self, x: Tensor) -> Tensor:
        """Return the regret of features (B, M), shape (B,), by the features alone."""
        if self._of_features is None:
            raise _api.RequiresFittingException
        scores: Tensor = self._of_features.score(x.detach())
        return scores

    def _encoder(self) -> Callable[[Tensor], Tensor]:
        if self._encode is None:
            raise _api.ModelNotSetException
        return self._encode

    def _module(self) -> nn.Module | None:
        """Return the module that the encoder is, or is a method of."""
        module = self._encode if isinstance(self._encode, nn.Module) else getattr(self._encode, "__self__", None)
        return module if isinstance(module, nn.Module) else None

    def _new_detector(self) -> Detector:
        return Detector(self.head.weight, self.head.bias, embedding_scale=self.embedding_scale)

    def _new_guard(self) -> Guard | None:
        """Return a guard of encoder and head; None where no layers of the encoder can be watched, or none shall be."""
        module, named = self._module(), not isinstance(self.layers, str)
        if self._encode is None or module is None:
            if named or self._encode is not None:
                reason = f"the encoder is a {type(self._encode).__name__}, neither a module nor a method of one"
                without_layers(reason, self.layers, self.embedding_scale)
            return None
        layers = [f"encoder.{name}" for name in self.layers] if named else self.layers
        if layers == "last":
            return None
        model = _EncoderAndHead(self._encode, module, self.head)
        return Guard(model, head="head", layers=layers, embedding_scale=self.embedding_scale)


class _EncoderAndHead(nn.Module):
    """A classifier made of both; the head comes first, to have that name also if the encoder's module owns it."""

    def __init__(self, encode: Callable[[Tensor], Tensor], module: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.head, self.encoder = head, module
        self._encode = (encode,)  # not a submodule once more

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self._encode[0](x).flatten(1))
        return logits
