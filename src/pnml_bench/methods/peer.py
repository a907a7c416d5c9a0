"""A detector of the pytorch-ood package as a method, run on the same embeddings as our methods.

A peer is fitted on the training embeddings, logits and labels of a view with the package's own defaults, which
:attr:`Peer.settings` records. Peers have no combination with pNML. A peer that fails raises a
:class:`~pnml_bench.methods.protocol.MethodFailedError`.
"""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch.nn.functional import normalize

from pnml.integrations._import import import_pytorch_ood
from pnml_bench.methods.protocol import Method, MethodFailedError

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from pnml_bench.methods.view import View
    from pnml_bench.zoo import Network

_MODEL_ARGUMENT = {"features": "encoder", "logits": "model", "feature_maps": "backbone"}
_FAILURES = (RuntimeError, ValueError, AssertionError, LookupError, AttributeError, TypeError)
_AT_ONCE = 1 << 27  # some peers hold one number for every row, class and feature: 512 MiB in float32


class Peer(Method):
    """A detector of pytorch-ood.

    Attributes:
        class_name: its class in ``pytorch_ood.detector``.
        input_kind: its input: "features" (the embeddings), "logits", or "feature_maps" (the embeddings as maps of one
            pixel).
        needs_head: whether it also needs the last layer, as a function of embeddings.
        unit_norm: whether embeddings are scaled to norm 1.
        needs_every_class: whether every class must occur in the training labels.
        needs_gradients: whether it computes gradients.
    """

    composes = False
    class_name: ClassVar[str]
    input_kind: ClassVar[str] = "features"
    needs_head: ClassVar[bool] = False
    unit_norm: ClassVar[bool] = False
    needs_every_class: ClassVar[bool] = False
    needs_gradients: ClassVar[bool] = False

    def __init__(self) -> None:
        self._package = import_pytorch_ood(f"the method {self.name!r}")

    def constructor_arguments(self, network: Network) -> dict[str, Any]:
        """Return the arguments of the peer's class, with None for the part of the network that takes images."""

        def head(x: Tensor) -> Any:
            return network.head(x.flatten(1).to(network.head.weight.device))  # some peers work on the CPU

        return {_MODEL_ARGUMENT[self.input_kind]: None, **({"head": head} if self.needs_head else {})}

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
