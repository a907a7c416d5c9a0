"""Peers that are given the features of the same layers as the regret."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize, one_hot

from pnml_bench.methods.peers import Peer
from pnml_bench.methods.protocol import Method, MethodFailedError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pnml_bench.methods.view import View

NEIGHBOURS = 50
_DISTANCES = 1 << 26  # at once: 256 MiB in float32


class SeveralLayers(Method):
    """A distance to the training set in the features of several layers and the embedding, each scaled to norm 1."""

    composes = False
    needs_features = True

    def fit(self, train: View) -> SeveralLayers:
        """Choose the layers as the regret does."""
        super().fit(train)
        self.layers = train.layers
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The layers."""
        return {"layers": [str(layer) for layer in self.layers]}

    def unit_layers(self, view: View) -> list[Tensor]:
        """Return the embedding and the features of every layer, rows scaled to norm 1."""
        return [normalize(layer, dim=1) for layer in (view.embeddings, *view.features(self.layers))]


class KnnLayers(SeveralLayers):
    """Sun et al., 2022, on all layers side by side: the distance to the 50th nearest training image."""

    name = "knn-layers"

    def fit(self, train: View) -> KnnLayers:
        """Keep the training set."""
        super().fit(train)
        if len(train) < NEIGHBOURS:
            raise MethodFailedError(f"{self.name} needs at least {NEIGHBOURS} training images, got {len(train):,}")
        self._train = torch.cat(self.unit_layers(train), dim=1)
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The number of neighbours and the layers."""
        return {"k": NEIGHBOURS, **super().settings}

    def score(self, view: View) -> Tensor:
        """Return the distance of every image, shape (n,)."""
        rows = torch.cat(self.unit_layers(view), dim=1)
        parts = torch.split(rows, max(1, _DISTANCES // len(self._train)))
        return torch.cat([torch.cdist(part, self._train).kthvalue(NEIGHBOURS, dim=1).values for part in parts])


class MahalanobisLayers(SeveralLayers):
    """Lee et al., 2018: the squared distance to the nearest class mean under one covariance, summed over layers.

    The published method weights layers by a regression on OOD images; this is their plain sum. Directions in which
    training images do not vary are left out, as a pseudo-inverse does.
    """

    name = "mahalanobis-layers"

    def fit(self, train: View) -> MahalanobisLayers:
        """Compute the means of the classes and the covariance about them in every layer."""
        super().fit(train)
        if train.images.labels is None:
            raise MethodFailedError(f"{self.name} needs labels, but {train.images!r} has none")
        _, numbers = np.unique(train.images.labels, return_inverse=True)
        classes = torch.from_numpy(numbers).to(train.device)
        members = one_hot(classes).double()
        self._layers = []
        for layer in self.unit_layers(train):
            rows = layer.double()
            means = (members.T @ rows) / members.sum(dim=0)[:, None]
            centred = rows - means[classes]
            whitening = _inverse_root(centred.T @ centred / len(rows))
            self._layers.append((whitening, means @ whitening))
        return self

    def score(self, view: View) -> Tensor:
        """Return the sum of the distances of every image, shape (n,), in float64."""
        total = torch.zeros(len(view), dtype=torch.float64, device=view.device)
        for layer, (whitening, means) in zip(self.unit_layers(view), self._layers, strict=True):
            rows = layer.double() @ whitening
            total += torch.cdist(rows, means).amin(dim=1) ** 2
        return total


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


def _inverse_root(covariance: Tensor) -> Tensor:
    """Return A (M, rank) such that A Aᵀ is the pseudo-inverse of a covariance (M, M)."""
    eigenvalues, eigenvectors = torch.linalg.eigh(covariance)
    kept = eigenvalues > len(covariance) * torch.finfo(covariance.dtype).eps * eigenvalues[-1]
    root: Tensor = eigenvectors[:, kept] / eigenvalues[kept].sqrt()
    return root


LAYER_PEERS: dict[str, type[Method]] = {method.name: method for method in (KnnLayers, MahalanobisLayers, Nac)}
