"""Detectors to compare with, on embeddings and on the features of several layers: a few lines each, on any device.

Every function is given what a detector may know of the training set and returns scores, larger = stranger. Constants
are those of pytorch-ood.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch.nn.functional import normalize

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

NEIGHBOURS = 50


@dataclass(frozen=True, eq=False)
class Rows:
    """Logits (n, C), embeddings (n, M) and the features of earlier layers (n, features) of n images."""

    logits: Tensor
    embeddings: Tensor
    features: list[Tensor]

    @cached_property
    def layers(self) -> list[Tensor]:
        """The embeddings and the features of every earlier layer, all scaled to norm 1."""
        return [normalize(x, dim=1) for x in (self.embeddings, *self.features)]


@dataclass(frozen=True, eq=False)
class Known:
    """The training set: rows, labels (N,), and the last layer's weight (C, M) and bias (C,)."""

    rows: Rows
    labels: Tensor
    weight: Tensor
    bias: Tensor


def confidence(_known: Known) -> dict[str, Callable[[Rows], Tensor]]:
    """MSP, MaxLogit, Energy and GEN (gamma 0.1, at most 100 classes)."""

    def entropy(x: Rows) -> Tensor:
        p = x.logits.double().softmax(dim=1).sort(dim=1, descending=True).values[:, :100]
        return (p**0.1 * (1 - p) ** 0.1).sum(dim=1)

    return {
        "msp": lambda x: -x.logits.double().softmax(dim=1).max(dim=1).values,
        "maxlogit": lambda x: -x.logits.max(dim=1).values,
        "energy": lambda x: -x.logits.double().logsumexp(dim=1),
        "gen": entropy,
    }


def shaped(known: Known) -> dict[str, Callable[[Rows], Tensor]]:
    """ReAct (clipped at the 90th percentile) and ASH-S (65 % removed): the energy of altered embeddings."""
    some = known.rows.embeddings.flatten()[:: max(1, known.rows.embeddings.numel() // 10_000_000)]
    top = some.float().kthvalue(int(0.9 * len(some))).values

    def energy(x: Tensor) -> Tensor:
        return -(x @ known.weight.T + known.bias).logsumexp(dim=1)

    def ash(x: Rows) -> Tensor:
        e = x.embeddings
        kept = e.topk(e.shape[1] - round(0.65 * e.shape[1]), dim=1)
        sparse = torch.zeros_like(e).scatter_(1, kept.indices, kept.values)
        return energy(sparse * (e.sum(dim=1) / sparse.sum(dim=1)).clamp(max=30).exp()[:, None])  # sums may be near 0

    return {"react": lambda x: energy(x.embeddings.clamp(max=top)), "ash": ash}


def prototypes(known: Known) -> dict[str, Callable[[Rows], Tensor]]:
    """SHE: inner product with the mean embedding of the predicted class, over training images that are right."""
    right = known.rows.logits.argmax(dim=1) == known.labels
    means = torch.stack(
        [known.rows.embeddings[right & (known.labels == c)].mean(dim=0) for c in range(len(known.weight))]
    )
    return {"she": lambda x: -(x.embeddings * means[x.logits.argmax(dim=1)]).sum(dim=1)}


def residual(known: Known) -> dict[str, Callable[[Rows], Tensor]]:
    """ViM: length outside of a principal subspace, weighed against the energy."""
    x, width = known.rows.embeddings.double(), known.rows.embeddings.shape[1]
    principal = 1000 if width > 1500 else 512 if width > 512 else width // 2
    origin = -torch.linalg.pinv(known.weight.double()) @ known.bias.double()
    centred = x - origin
    null = torch.linalg.eigh(centred.T @ centred / len(x)).eigenvectors[:, : width - principal]
    outside = (centred @ null).norm(dim=1)
    alpha = known.rows.logits.double().max(dim=1).values.sum() / outside.sum()

    def vim(rows: Rows) -> Tensor:
        beyond = ((rows.embeddings.double() - origin) @ null).norm(dim=1)
        return alpha * beyond - rows.logits.double().logsumexp(dim=1)

    return {"vim": vim}


def mahalanobis(known: Known) -> dict[str, Callable[[Rows], Tensor]]:
    """Mahalanobis distance to the nearest class, and the same relative to all training images."""
    x = known.rows.embeddings.double()
    nearest = _gaussian(x, known.labels, len(known.weight))
    overall = _gaussian(x, torch.zeros_like(known.labels), 1)
    return {
        "mahalanobis": lambda rows: nearest(rows.embeddings.double()),
        "rmd": lambda rows: nearest(rows.embeddings.double()) - overall(rows.embeddings.double()),
    }


def neighbours(known: Known) -> dict[str, Callable[[Rows], Tensor]]:
    """Distance to the 50th nearest training image at norm 1."""
    train = known.rows.layers[0]
    return {"knn": lambda rows: _distance(rows.layers[0], train)}


def several_layers(known: Known) -> dict[str, Callable[[Rows], Tensor]]:
    """Compare all layers side by side (kNN), and the sum of every layer's Mahalanobis distance."""
    train = torch.cat(known.rows.layers, dim=1)
    parts = [_gaussian(x.double(), known.labels, len(known.weight)) for x in known.rows.layers]

    def distances(rows: Rows) -> Tensor:
        return torch.stack([part(x.double()) for part, x in zip(parts, rows.layers, strict=True)]).sum(dim=0)

    return {
        "knn-layers": lambda rows: _distance(torch.cat(rows.layers, dim=1), train),
        "mahalanobis-layers": distances,
    }


PEERS = (confidence, shaped, prototypes, residual, mahalanobis, neighbours)


def _gaussian(x: Tensor, labels: Tensor, classes: int) -> Callable[[Tensor], Tensor]:
    """Return the function from rows to the square of their Mahalanobis distance to the nearest class mean."""
    member = torch.nn.functional.one_hot(labels, classes).to(x.dtype)
    means = (member.T @ x) / member.sum(dim=0).clamp(min=1)[:, None]
    centred = x - means[labels]
    values, vectors = torch.linalg.eigh(centred.T @ centred / len(x))
    kept = values > values[-1] * len(values) * 2.2e-16
    whitening = vectors[:, kept] / values[kept].sqrt()
    centres = means @ whitening

    def distance(rows: Tensor) -> Tensor:
        return torch.cat([torch.cdist(part @ whitening, centres).min(dim=1).values ** 2 for part in rows.split(4096)])

    return distance


def _distance(rows: Tensor, train: Tensor) -> Tensor:
    return torch.cat([torch.cdist(part, train).kthvalue(NEIGHBOURS, dim=1).values for part in rows.split(1024)])
