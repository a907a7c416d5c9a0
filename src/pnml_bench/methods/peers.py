"""The peers: detectors of the pytorch-ood package as methods, run on the same embeddings as ours.

``PEERS`` lists those that see the embeddings and the last layer of a network. A peer is fitted on the training
embeddings, logits and labels of a view with the package's own defaults, which :attr:`Peer.settings` records. Peers have
no combination with pNML. A peer that fails raises a :class:`~pnml_bench.methods.protocol.MethodFailedError`.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar, cast

import numpy as np
import torch
from torch.nn.functional import normalize

from pnml.backend.extras import require
from pnml.integrations._import import import_pytorch_ood
from pnml_bench.methods.protocol import Method, MethodFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor, nn

    from pnml_bench.methods.view import View

_MODEL_ARGUMENT = {"features": "encoder", "logits": "model", "feature_maps": "backbone"}
_FAILURES = (RuntimeError, ValueError, AssertionError, LookupError, AttributeError, TypeError)
_AT_ONCE = 1 << 27  # some peers hold one number for every row, class and feature: 512 MiB in float32


class Peer(Method):
    """A detector of pytorch-ood.

    Attributes:
        class_name: its class in ``pytorch_ood.detector``.
        input_kind: its input: "features" (the embeddings), "logits", or "feature_maps" (the embeddings as maps of one
            pixel).
        takes: returns further arguments of the class, of the last layer.
        unit_norm: whether embeddings are scaled to norm 1.
        needs_every_class: whether every class must occur in the training labels.
        needs_gradients: whether it computes gradients.
        needs_sklearn: whether it takes neighbours of scikit-learn.
    """

    composes = False
    class_name: ClassVar[str]
    input_kind: ClassVar[str] = "features"
    unit_norm: ClassVar[bool] = False
    needs_every_class: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False
    needs_sklearn: ClassVar[bool] = False

    def __init__(self) -> None:
        self._package = import_pytorch_ood(f"the method {self.name!r}")
        if self.needs_sklearn:
            require("sklearn.neighbors", extra="sklearn", what=f"the method {self.name!r}")

    @staticmethod
    def takes(head: nn.Linear) -> dict[str, Any]:
        """Return nothing of the last layer."""
        del head
        return {}

    def fit(self, train: View) -> Peer:
        """Fit the peer on the training set."""
        super().fit(train)
        labels = train.images.labels
        if labels is None:
            raise MethodFailedError(f"{self.name} needs labels, but {train.images!r} has none")
        rows = self._rows(train)
        y = torch.from_numpy(labels).to(rows.device)
        present, classes = len(np.unique(labels)), train.logits.shape[1]
        step = f"fitting on {len(y):,} samples of {present} of {classes} classes"
        if self.needs_every_class and present < classes:
            raise MethodFailedError(f"{self.name} failed when {step}: it needs samples of every class")

        def fit() -> Any:
            images_to_input = {_MODEL_ARGUMENT[self.input_kind]: None}  # embeddings are given instead
            peer = getattr(self._package.detector, self.class_name)(**images_to_input, **self.takes(train.network.head))
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
        norm = {"unit_norm": True} if self.unit_norm else {}
        return {"class": source, **plain, **self._peer.get_hyperparameters(), **norm, **device}

    def score(self, view: View) -> Tensor:
        """Return the peer's score of every image, shape (n,)."""
        predict = getattr(self._peer, f"predict_{self.input_kind}")
        rows, head = self._rows(view), view.network.head
        parts = torch.split(rows, max(1, _AT_ONCE // (head.in_features * head.out_features)))
        return self._scores(lambda: torch.cat([predict(part) for part in parts]), view)

    def _scores(self, call: Callable[[], Tensor], view: View) -> Tensor:
        """Return the scores that ``call`` computes; raise if there is a NaN among them."""
        scores: Tensor = self._run(call, f"scoring {view.images!r}")
        if missing := int(scores.isnan().sum()):
            raise MethodFailedError(
                f"{self.name} returned NaN for {missing:,} of {len(scores):,} scores of {view.images!r}"
            )
        return scores

    def _rows(self, view: View) -> Tensor:
        rows = view.logits if self.input_kind == "logits" else view.embeddings
        if self.runs_on is not None:
            rows = rows.to(self.runs_on)
        if self.unit_norm:
            rows = normalize(rows, dim=1)
        return rows[:, :, None, None] if self.input_kind == "feature_maps" else rows

    def _run(self, call: Callable[[], Any], step: str) -> Any:
        try:
            with torch.inference_mode(not self.needs_gradients):
                return call()
        except _FAILURES as error:
            reason = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(": ")
            raise MethodFailedError(f"{self.name} failed when {step}: {reason}") from error


def _function(head: nn.Linear) -> dict[str, Any]:
    return {"head": lambda x: head(x.flatten(1).to(head.weight.device))}  # some peers work on the CPU


def _layer(head: nn.Linear) -> dict[str, Any]:
    return {"head": head}


def _weights(head: nn.Linear) -> dict[str, Any]:
    return {"w": head.weight.detach(), "b": head.bias.detach()}


def _vim(head: nn.Linear) -> dict[str, Any]:
    """Return the dimension of the subspace, for which the package has no default, and the last layer.

    The paper's authors use 1,000 for more than 1,500 features and 512 otherwise; for networks with no more features
    than that, it is half of them, as in the package.
    """
    width = head.in_features
    authors = 1000 if width > 1500 else 512
    return {"d": authors if width > authors else width // 2, **_weights(head)}


def _dice(head: nn.Linear) -> dict[str, Any]:
    """Return the share of weights to remove, 90% as by its authors for CIFAR: the package has no default."""
    return {"p": 0.9, **_weights(head)}


def _of_package(
    name: str, class_name: str, *, takes: Callable[[nn.Linear], dict[str, Any]] = Peer.takes, **attributes: Any
) -> type[Peer]:
    """Return the peer of a class of pytorch-ood."""
    about = {"name": name, "class_name": class_name, "takes": staticmethod(takes), **attributes}
    return cast("type[Peer]", type(class_name, (Peer,), about))


_MAPS: dict[str, Any] = {"input_kind": "feature_maps", "takes": _function}

PEERS: dict[str, type[Method]] = {
    peer.name: peer
    for peer in (
        # Lee et al., 2018: distance to the nearest class mean, under one covariance for all classes.
        _of_package("mahalanobis", "Mahalanobis"),
        # Ren et al., 2021: the Mahalanobis distance minus the distance under one Gaussian for all training images.
        _of_package("rmd", "RMD"),
        # Wang et al., 2022: the norm of the embedding outside of a principal subspace, combined with the energy.
        _of_package("vim", "ViM", takes=_vim),
        # Sun et al., 2022: distance to the 50th nearest training embedding, at norm 1; computed on the CPU.
        _of_package("knn", "KNN", runs_on="cpu", needs_sklearn=True),
        # Sun et al., 2021: the energy of embeddings clipped at the 90th percentile of the training set.
        _of_package("react", "ReAct", **_MAPS),
        # Djurisic et al., 2023: the energy of embeddings with small values removed and the rest scaled up (ASH-S),
        # after pooling, as in the code of its authors.
        _of_package("ash", "ASH", **_MAPS),
        # Zhang et al., 2023: inner product with the mean embedding of the predicted class, negated.
        _of_package("she", "SHE", takes=_function, needs_every_class=True),
        # Liu et al., 2023: a generalised entropy of the probabilities.
        _of_package("gen", "GEN", input_kind="logits"),
        # Hendrycks et al., 2022: divergence from the mean training probabilities of the nearest class.
        _of_package("kl-matching", "KLMatching", input_kind="logits"),
        # Hendrycks et al., 2022: the largest logit, negated.
        _of_package("maxlogit", "MaxLogit", input_kind="logits"),
        # The implementation of the paper's regret in pytorch-ood: in float32, divided by log C.
        _of_package("pytorch-ood-pnml", "PNML", takes=_function),
        # Müller and Hein, 2025 (Mahalanobis++): both distances of embeddings at norm 1.
        _of_package("mahalanobis-plus", "Mahalanobis", unit_norm=True),
        _of_package("rmd-plus", "RMD", unit_norm=True),
        # One Gaussian for each class, with a covariance of its own: the negative log-likelihood of their mixture.
        _of_package("gmm", "GMM"),
        # Sun and Li, 2022: the energy of a last layer without the weights that contribute least on training images.
        _of_package("dice", "DICE", takes=_dice),
        # Xu et al., 2023: the energy of embeddings clipped to the 1st and 99th percentile of each feature.
        _of_package("vra", "VRA", **_MAPS),
        # Park et al., 2023: the energy times the similarity to the 10 nearest training embeddings, negated.
        _of_package("nnguide", "NNGuide", takes=_function),
        # Xu et al., 2024: the energy of embeddings scaled by how much of their sum is in the largest features.
        _of_package("scale", "SCALE", **_MAPS),
        # Djurisic et al., 2025: the energy of logits scaled by how much of the embedding is in its largest features.
        _of_package("lts", "LTS", takes=_function),
        # Liu and Qin, 2024: distance to the decision boundaries, relative to that to the training mean, negated.
        _of_package("fdbd", "fDBD", takes=_layer),
        # Liu and Qin, 2025: how far the embedding points along the weight of the predicted class, negated. With the
        # package's default, the norm of the embedding has weight 0.
        _of_package("nci", "NCI", takes=_layer),
    )
}
