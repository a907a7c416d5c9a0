"""Peers: the detectors of the pytorch-ood package, run on the same embeddings as our methods.

Each peer is fitted on the training embeddings, logits and labels of a view with the package's own defaults, which
:attr:`Peer.settings` records. Peers have no combination with pNML. A peer that fails raises a
:class:`~pnml.bench.methods.protocol.MethodFailedError`.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch

from pnml.backend.extras import require
from pnml.bench.methods.protocol import Method, MethodFailedError
from pnml.integrations._import import import_pytorch_ood

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from pnml.bench.methods.view import View
    from pnml.bench.zoo import Network
    from pnml.core.detector import Detector

_MODEL_ARGUMENT = {"features": "encoder", "logits": "model", "feature_maps": "backbone"}
_FAILURES = (RuntimeError, ValueError, AssertionError, IndexError)


class Peer(Method):
    """A detector of pytorch-ood.

    Attributes:
        class_name: its class in ``pytorch_ood.detector``.
        input_kind: its input: "features" (the embeddings), "logits", or "feature_maps" (the embeddings as maps of one
            pixel).
        needs_head: whether it also needs the last layer.
        needs_every_class: whether every class must occur in the training labels.
    """

    composes = False
    class_name: ClassVar[str]
    input_kind: ClassVar[str] = "features"
    needs_head: ClassVar[bool] = False
    needs_every_class: ClassVar[bool] = False

    def __init__(self) -> None:
        self._package = import_pytorch_ood(f"the method {self.name!r}")

    def constructor_arguments(self, network: Network) -> dict[str, Any]:
        """Return the arguments of the peer's class, with None for the part of the network that takes images."""
        head = {"head": lambda x: network.head(x.flatten(1))} if self.needs_head else {}
        return {_MODEL_ARGUMENT[self.input_kind]: None, **head}

    def fit(self, train: View, detector: Detector) -> Peer:
        """Fit the peer on the training set."""
        super().fit(train, detector)
        labels = train.images.labels
        if labels is None:
            raise MethodFailedError(f"{self.name} needs labels, but {train.images!r} has none")
        rows = self._rows(train)
        y = torch.from_numpy(labels).to(rows.device)
        present, classes = len(np.unique(labels)), train.logits.shape[1]
        step = f"fitting on {len(y):,} images of {present} of {classes} classes"
        if self.needs_every_class and present < classes:
            raise MethodFailedError(f"{self.name} failed when {step}: it needs images of every class")

        def fit() -> Any:
            peer = getattr(self._package.detector, self.class_name)(**self.constructor_arguments(train.network))
            return getattr(peer, f"fit_{self.input_kind}")(rows, y)

        self._peer = self._run(fit, step)
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The package, the class and its hyper-parameters."""
        defaults = {name: p.default for name, p in signature(type(self._peer)).parameters.items()}
        plain = {name: value for name, value in defaults.items() if isinstance(value, bool | int | float | str)}
        source = f"pytorch-ood {self._package.__version__}: {self.class_name}"
        device = {"device": self.runs_on} if self.runs_on else {}
        return {"class": source, **plain, **self._peer.get_hyperparameters(), **device}

    def score(self, view: View) -> Tensor:
        """Return the peer's score of every image, shape (n,)."""
        predict = getattr(self._peer, f"predict_{self.input_kind}")
        scores: Tensor = self._run(lambda: predict(self._rows(view)), f"scoring {view.images!r}")
        if missing := int(scores.isnan().sum()):
            raise MethodFailedError(
                f"{self.name} returned NaN for {missing:,} of {len(scores):,} scores of {view.images!r}"
            )
        return scores

    def _rows(self, view: View) -> Tensor:
        rows = view.logits if self.input_kind == "logits" else view.embeddings
        if self.runs_on is not None:
            rows = rows.to(self.runs_on)
        return rows[:, :, None, None] if self.input_kind == "feature_maps" else rows

    def _run(self, call: Callable[[], Any], step: str) -> Any:
        try:
            with torch.inference_mode():
                return call()
        except _FAILURES as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
            raise MethodFailedError(f"{self.name} failed when {step}: {reason}") from error


class Mahalanobis(Peer):
    """Lee et al., 2018: distance to the nearest class mean, under one covariance for all classes."""

    name, class_name = "mahalanobis", "Mahalanobis"


class Rmd(Peer):
    """Ren et al., 2021: the Mahalanobis distance minus the distance under one Gaussian for all training images."""

    name, class_name = "rmd", "RMD"


class Vim(Peer):
    """Wang et al., 2022: the norm of the embedding outside of a principal subspace, combined with the energy.

    The package has no default dimension of the subspace. The paper's authors use 1,000 for more than 1,500 features
    and 512 otherwise; for networks with no more features than that, it is half of them, as in the package.
    """

    name, class_name = "vim", "ViM"

    def constructor_arguments(self, network: Network) -> dict[str, Any]:
        """Return the dimension and the last layer."""
        head, width = network.head, network.head.in_features
        authors = 1000 if width > 1500 else 512
        d = authors if width > authors else width // 2
        return {"encoder": None, "d": d, "w": head.weight.detach(), "b": head.bias.detach()}


class Knn(Peer):
    """Sun et al., 2022: distance to the 50th nearest training embedding, at norm 1; computed on the CPU."""

    name, class_name = "knn", "KNN"
    runs_on = "cpu"

    def __init__(self) -> None:
        super().__init__()
        require("sklearn.neighbors", extra="sklearn", what=f"the method {self.name!r}")


class React(Peer):
    """Sun et al., 2021: the energy of embeddings clipped at the 90th percentile of the training set."""

    name, class_name, input_kind, needs_head = "react", "ReAct", "feature_maps", True


class Ash(Peer):
    """Djurisic et al., 2023: the energy of embeddings with small values removed and the rest scaled up (ASH-S).

    It is applied to the embedding, after pooling, as in the code of its authors.
    """

    name, class_name, input_kind, needs_head = "ash", "ASH", "feature_maps", True


class She(Peer):
    """Zhang et al., 2023: inner product with the mean embedding of the predicted class, negated."""

    name, class_name, needs_head, needs_every_class = "she", "SHE", True, True


class Gen(Peer):
    """Liu et al., 2023: a generalised entropy of the probabilities."""

    name, class_name, input_kind = "gen", "GEN", "logits"


class KlMatching(Peer):
    """Hendrycks et al., 2022: divergence from the mean training probabilities of the nearest class."""

    name, class_name, input_kind = "kl-matching", "KLMatching", "logits"


class MaxLogit(Peer):
    """Hendrycks et al., 2022: the largest logit, negated."""

    name, class_name, input_kind = "maxlogit", "MaxLogit", "logits"


class PytorchOodPnml(Peer):
    """The implementation of the paper's regret in pytorch-ood: in float32, divided by log C."""

    name, class_name, needs_head = "pytorch-ood-pnml", "PNML", True
