"""Peers: the detectors of the pytorch-ood package, in the same run as ours and on the same embeddings.

They are run, not rewritten: fitted on a view's training embeddings, logits and labels, with the package's own
defaults, which :attr:`Peer.settings` states. What they would be with pNML is not defined; they have their own score
alone. A peer that fails says so with a :class:`~pnml.bench.methods.protocol.MethodFailedError`.
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

_MODEL_PART = {"features": "encoder", "logits": "model", "feature_maps": "backbone"}
_FAILURES = (RuntimeError, ValueError, AssertionError, IndexError)


class Peer(Method):
    """A detector of pytorch-ood.

    Attributes:
        theirs: its class in ``pytorch_ood.detector``.
        takes: what it looks at: "features" (the embeddings), "logits", or "feature_maps", for which it is given the
            embeddings as maps of one pixel.
        needs_head: whether it also asks for the last layer.
        needs_every_class: whether it looks up the predicted class among those of the training labels.
    """

    composes = False
    theirs: ClassVar[str]
    takes: ClassVar[str] = "features"
    needs_head: ClassVar[bool] = False
    needs_every_class: ClassVar[bool] = False

    def __init__(self) -> None:
        self._package = import_pytorch_ood(f"the method {self.name!r}")

    def arguments(self, network: Network) -> dict[str, Any]:
        """Give what its class is made with; the part of the network that sees images is left out."""
        head = {"head": lambda x: network.head(x.flatten(1))} if self.needs_head else {}
        return {_MODEL_PART[self.takes]: None, **head}

    def fit(self, train: View, detector: Detector) -> Peer:
        """Fit the peer on the training set."""
        super().fit(train, detector)
        labels = train.images.labels
        if labels is None:
            raise MethodFailedError(f"{self.name} needs labels, and {train.images!r} has none")
        rows = self._rows(train)
        y = torch.from_numpy(labels).to(rows.device)
        seen, classes = len(np.unique(labels)), train.logits.shape[1]
        about = f"fitted on {len(y):,} images of {seen} of {classes} classes"
        if self.needs_every_class and seen < classes:
            raise MethodFailedError(f"{self.name} failed when {about}: it needs images of every class")

        def fitted() -> Any:
            made = getattr(self._package.detector, self.theirs)(**self.arguments(train.network))
            return getattr(made, f"fit_{self.takes}")(rows, y)

        self._peer = self._attempt(fitted, about)
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The package and class, and the hyper-parameters that were used."""
        defaults = {name: p.default for name, p in signature(type(self._peer)).parameters.items()}
        plain = {name: value for name, value in defaults.items() if isinstance(value, bool | int | float | str)}
        made = f"pytorch-ood {self._package.__version__}: {self.theirs}"
        where = {"device": self.runs_on} if self.runs_on else {}
        return {"class": made, **plain, **self._peer.get_hyperparameters(), **where}

    def score(self, view: View) -> Tensor:
        """Give the peer's score of every image, shape (n,)."""
        scores: Tensor = self._attempt(
            lambda: getattr(self._peer, f"predict_{self.takes}")(self._rows(view)), f"asked about {view.images!r}"
        )
        if missing := int(scores.isnan().sum()):
            raise MethodFailedError(f"{self.name} gave {missing:,} of {len(scores):,} scores of {view.images!r} as NaN")
        return scores

    def _rows(self, view: View) -> Tensor:
        rows = view.logits if self.takes == "logits" else view.embeddings
        if self.runs_on is not None:
            rows = rows.to(self.runs_on)
        return rows[:, :, None, None] if self.takes == "feature_maps" else rows

    def _attempt(self, work: Callable[[], Any], about: str) -> Any:
        try:
            with torch.inference_mode():
                return work()
        except _FAILURES as error:
            said = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
            raise MethodFailedError(f"{self.name} failed when {about}: {said}") from error


class Mahalanobis(Peer):
    """Lee et al., 2018: distance to the nearest class mean, under one covariance for all classes."""

    name, theirs = "mahalanobis", "Mahalanobis"


class Rmd(Peer):
    """Ren et al., 2021: Mahalanobis, less the distance under one Gaussian for all training images."""

    name, theirs = "rmd", "RMD"


class Vim(Peer):
    """Wang et al., 2022: the embedding's part outside of a principal subspace, against the energy.

    The package has no default for the subspace's dimension. Its authors take 1,000 for more than 1,500 features and
    512 otherwise; where the network has no more features than that, it is half of them, as the package does.
    """

    name, theirs = "vim", "ViM"

    def arguments(self, network: Network) -> dict[str, Any]:
        """Give the dimension and the last layer."""
        head, width = network.head, network.head.in_features
        authors = 1000 if width > 1500 else 512
        d = authors if width > authors else width // 2
        return {"encoder": None, "d": d, "w": head.weight.detach(), "b": head.bias.detach()}


class Knn(Peer):
    """Sun et al., 2022: distance to the 50th nearest training embedding, at norm 1. It computes on the CPU."""

    name, theirs = "knn", "KNN"
    runs_on = "cpu"

    def __init__(self) -> None:
        super().__init__()
        require("sklearn.neighbors", extra="sklearn", what=f"the method {self.name!r}")


class React(Peer):
    """Sun et al., 2021: the energy after the embedding was clipped at the training set's 90th percentile."""

    name, theirs, takes, needs_head = "react", "ReAct", "feature_maps", True


class Ash(Peer):
    """Djurisic et al., 2023: the energy after the embedding lost its smaller values and the rest was stretched (ASH-S).

    It acts on the embedding, that is, after the pooling, as the code of its authors does.
    """

    name, theirs, takes, needs_head = "ash", "ASH", "feature_maps", True


class She(Peer):
    """Zhang et al., 2023: inner product with the mean embedding of the predicted class."""

    name, theirs, needs_head, needs_every_class = "she", "SHE", True, True


class Gen(Peer):
    """Liu et al., 2023: a generalised entropy of the probabilities."""

    name, theirs, takes = "gen", "GEN", "logits"


class KlMatching(Peer):
    """Hendrycks et al., 2022: divergence from the nearest class's mean probabilities on the training set."""

    name, theirs, takes = "kl-matching", "KLMatching", "logits"


class MaxLogit(Peer):
    """Hendrycks et al., 2022: the largest logit, negated."""

    name, theirs, takes = "maxlogit", "MaxLogit", "logits"


class PytorchOodPnml(Peer):
    """Their own implementation of the paper's regret: in float32, divided by log C."""

    name, theirs, needs_head = "pytorch-ood-pnml", "PNML", True
