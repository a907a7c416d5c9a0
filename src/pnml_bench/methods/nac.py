"""Neuron activation coverage: a peer of pytorch-ood that sees several layers and their gradients."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pnml_bench.methods.peer import Peer
from pnml_bench.methods.protocol import Method

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from pnml_bench.methods.view import View


class Nac(Peer):
    """Liu et al., 2024 (NAC-UE): how rarely the neurons of a layer were as active on training images, negated.

    It takes the layers that the regret takes. It needs gradients, so it runs the network itself, forward and backward.
    """

    name, class_name, needs_gradients, needs_features = "nac", "NACUE", True, True

    def fit(self, train: View) -> Nac:
        """Count the activations of every neuron on the training set."""
        Method.fit(self, train)
        self._layers = train.layers
        modules = [train.network.get_submodule(layer.name) for layer in train.layers]

        def fit() -> Any:
            return self._package.detector.NACUE(train.network, modules).fit(_Batches(train))

        self._peer = self._run(fit, f"fitting on {len(train):,} samples")
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The package, the class, its hyper-parameters and the layers."""
        return {**super().settings, "layers": [str(layer) for layer in self._layers]}

    def score(self, view: View) -> Tensor:
        """Return the coverage of every image, negated, shape (n,)."""
        return self._scores(lambda: torch.cat([self._peer.predict(x) for x in _Batches(view)]), view)


class _Batches:
    """The images of a view as batches, which can be passed over again."""

    def __init__(self, view: View) -> None:
        self._view = view

    def __iter__(self) -> Iterator[Tensor]:
        return self._view.inputs("NAC")
