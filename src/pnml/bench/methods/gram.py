"""Gram (Sastry and Oore, 2020): how far Gram features leave the range that those of their class had in training.

The order of work: :meth:`Gram.fit` on the training set; :meth:`Gram.deviations` of the in-distribution test set and of
every other set; then, for each of the :func:`splits` of the in-distribution test set, :func:`gram_score` or
:func:`gram_pnml_regret` of all that was not held out. Metrics are averaged over the splits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pnml.bench.methods.gram_features import GramRanges, features_at_once, gram_features
from pnml.core import theorem
from pnml.core.subspace import xtg

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from pnml.bench.zoo import Network

_SMALL = 1e-7


class Gram:
    """Deviations of a network's activations from what the training set showed, tap by tap.

    Everything streams: one pass, in memory that does not depend on how many batches there are. Batches are normalised
    network inputs (n, 3, H, W) on the network's device; the network must be in evaluation mode.

    Args:
        compiled: fuse the computation of the features with ``torch.compile``. Many times faster, after up to a minute
            of compilation in the first batch; needs a compiler that PyTorch can use.

    Attributes:
        ranges: the fitted :class:`~pnml.bench.methods.gram_features.GramRanges`, None before :meth:`fit`; ranges of
            parts of a training set add up.

    >>> from pnml.bench.zoo import create
    >>> network = create("resnet-20", num_classes=10).eval()
    >>> train, test = torch.randn(8, 3, 32, 32), torch.randn(5, 3, 32, 32)
    >>> gram = Gram().fit(network, train.split(4))
    >>> gram.deviations(network, [test]).shape  # one column for each tap
    torch.Size([5, 54])
    """

    def __init__(self, *, compiled: bool = False) -> None:
        self.ranges: GramRanges | None = None
        self._features = torch.compile(features_at_once, dynamic=True, fullgraph=True) if compiled else gram_features

    def fit(self, network: Network, batches: Iterable[Tensor]) -> Gram:
        """Learn the range of every feature for every *predicted* class, forgetting what was fitted before."""
        ranges: GramRanges | None = None
        with torch.inference_mode():
            for batch in batches:
                taps, logits = self._read(network, batch)
                if ranges is None:
                    ranges = GramRanges(logits.shape[1], [tap.shape[1] for tap in taps], logits.device)
                ranges.update(torch.cat(taps, dim=1), logits.argmax(1))
        if ranges is None:
            raise ValueError("there was no batch to fit on: give at least one (an iterator is used up after one pass)")
        self.ranges = ranges.check()
        return self

    def deviations(self, network: Network, batches: Iterable[Tensor]) -> Tensor:
        """Give each sample's deviations divided by its largest softmax probability: shape (n, taps), in their order."""
        if self.ranges is None:
            raise ValueError("Gram is not fitted: call fit(network, training_batches) first")
        if network.head.out_features != self.ranges.n_classes:
            raise ValueError(
                f"Gram was fitted for {self.ranges.n_classes} classes and the network has {network.head.out_features}: "
                "fit it again with this network"
            )
        found = []
        with torch.inference_mode():
            for batch in batches:
                taps, logits = self._read(network, batch)
                confidence, predicted = logits.softmax(1).max(1)
                found.append(self.ranges.deviations(torch.cat(taps, dim=1), predicted) / confidence[:, None])
        if not found:
            raise ValueError("there was no batch to look at: give at least one (an iterator is used up after one pass)")
        return torch.cat(found)

    def _read(self, network: Network, batch: Tensor) -> tuple[list[Tensor], Tensor]:
        """Give the features of every tap, shape (n, 10 · channels) each, and the logits (n, C) of the same pass."""
        if network.training:
            raise ValueError("the network is in training mode, in which samples change each other: call network.eval()")
        taps: list[Tensor] = []

        def on_tap(_: int, activation: Tensor) -> None:
            taps.append(self._features(activation.contiguous()).flatten(1))

        embeddings = network.forward_with_taps(batch, on_tap)
        return taps, network.head(embeddings)


def splits(n: int, repeats: int = 10, seed: int = 0) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield (validation rows, other rows) of n samples, ``repeats`` times: a random tenth and the rest, both sorted.

    >>> [(len(validation), len(rest)) for validation, rest in splits(50, repeats=2)]
    [(5, 45), (5, 45)]
    """
    if n < 10:
        raise ValueError(f"a tenth of {n} samples is none: give at least 10")
    rng = np.random.default_rng(seed)
    for _ in range(repeats):
        rows = rng.permutation(n)
        yield np.sort(rows[: n // 10]), np.sort(rows[n // 10 :])


def gram_score(deviations: Tensor, validation_deviations: Tensor) -> Tensor:
    """Give the Gram score: larger = more out-of-distribution.

    Args:
        deviations: of the samples to score, shape (n, taps).
        validation_deviations: of in-distribution samples outside of the training set, shape (m, taps).

    Returns:
        The mean over taps of deviation / (sum of the tap's validation deviations + 1e-7), shape (n,), in float64.

    >>> gram_score(torch.tensor([[3.0, 8.0]]), torch.tensor([[1.0, 1.0], [2.0, 3.0]]))  # mean of 3/3 and 8/4
    tensor([1.5000], dtype=torch.float64)
    """
    _check_taps(deviations, validation_deviations)
    return (deviations.double() / (validation_deviations.double().sum(0) + _SMALL)).mean(1)


def gram_pnml_regret(
    log_probabilities: Tensor, leverage: Tensor, deviations: Tensor, validation_deviations: Tensor
) -> Tensor:
    """Give the regret in nats of embeddings that are stretched by how much their sample deviates (Gram+pNML).

    A unit-norm embedding is multiplied by the square root of s = mean over taps of deviation / standard deviation of
    the tap's validation deviations. That multiplies its leverage by s; the probabilities stay. A tap whose validation
    deviations are all alike counts with a standard deviation of 1e-7.

    Row i of the first three arguments must belong to the same sample. The published code pairs deviations grouped by
    predicted class with embeddings in their original order, that is, those of different samples.

    Args:
        log_probabilities: of the unit-norm embeddings, shape (n, C).
        leverage: h of the unit-norm embeddings, shape (n,), infinite outside of the span of the training set.
        deviations: shape (n, taps).
        validation_deviations: of in-distribution samples outside of the training set, shape (m, taps).

    Returns:
        Shape (n,), in the dtype of ``log_probabilities``.

    >>> h, log_p = torch.tensor([1.0, 1.0]), torch.tensor([[0.5, 0.5]]).log().expand(2, 2)
    >>> gram_pnml_regret(log_p, h, torch.tensor([[0.0], [1e9]]), torch.tensor([[1.0], [3.0]]))  # trusted, not at all
    tensor([0.0000, 0.2877])
    """
    _check_taps(deviations, validation_deviations)
    rows = len(log_probabilities), len(leverage), len(deviations)
    if len(set(rows)) > 1:
        raise ValueError(f"log_probabilities, leverage and deviations must have the same samples, got {rows} rows")
    spread = validation_deviations.double().std(0, correction=0).clamp_min(_SMALL)
    stretch = (deviations.double() / spread).mean(1)
    stretched = torch.where(stretch > 0, stretch * leverage, 0.0)  # without length there is no leverage, not even ∞
    regret: Tensor = theorem.regret(log_probabilities, xtg(stretched).to(log_probabilities.dtype), log=True)
    return regret


def _check_taps(deviations: Tensor, validation: Tensor) -> None:
    if (
        deviations.ndim != 2
        or validation.ndim != 2
        or deviations.shape[1] != validation.shape[1]
        or not len(validation)
    ):
        raise ValueError(
            "deviations and validation_deviations must have shapes (n, taps) and (m, taps) with m ≥ 1, got "
            f"{tuple(deviations.shape)} and {tuple(validation.shape)}"
        )
