"""Gram (Sastry and Oore, 2020): the deviation of Gram features from the range of their class in the training set.

The steps: :meth:`Gram.fit` on the training set; :meth:`Gram.deviations` of the in-distribution test set and of every
OOD set; then, for each of the :func:`validation_splits` of the in-distribution test set, :func:`gram_score` or
:func:`gram_pnml_regret` of the images that are not held out. Metrics are averaged over the splits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from pnml.core import theorem
from pnml.core.subspace import xtg
from pnml_bench.methods.gram_features import GramRanges, gram_features, gram_features_of_batch
from pnml_bench.methods.protocol import Method

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from pnml.core.detector import Detector
    from pnml_bench.methods.protocol import Rows
    from pnml_bench.methods.regret import PublishedDetector
    from pnml_bench.methods.view import View
    from pnml_bench.zoo import Network


_EPSILON = 1e-7


class Gram:
    """Deviations of a network's activations from their ranges in the training set, per tap.

    Both methods read the batches in one pass, in memory that does not depend on their number. Batches are normalised
    network inputs (n, 3, H, W) on the network's device; the network must be in evaluation mode.

    Args:
        compiled: compute the features with ``torch.compile``. Much faster, after up to a minute of compilation in the
            first batch; needs a compiler that PyTorch can use.

    Attributes:
        ranges: the fitted :class:`~pnml_bench.methods.gram_features.GramRanges`, None before :meth:`fit`.

    >>> from pnml_bench.zoo import create
    >>> network = create("resnet-20", num_classes=10).eval()
    >>> train, test = torch.randn(8, 3, 32, 32), torch.randn(5, 3, 32, 32)
    >>> gram = Gram().fit(network, train.split(4))
    >>> gram.deviations(network, [test]).shape  # one column for each tap
    torch.Size([5, 54])
    """

    def __init__(self, *, compiled: bool = False) -> None:
        self.ranges: GramRanges | None = None
        self._features = (
            torch.compile(gram_features_of_batch, dynamic=True, fullgraph=True) if compiled else gram_features
        )

    def fit(self, network: Network, batches: Iterable[Tensor]) -> Gram:
        """Fit the range of every feature for every *predicted* class, replacing any earlier fit."""
        ranges: GramRanges | None = None
        with torch.inference_mode():
            for batch in batches:
                taps, logits = self._features_and_logits(network, batch)
                if ranges is None:
                    ranges = GramRanges(logits.shape[1], [tap.shape[1] for tap in taps], logits.device)
                ranges.update(torch.cat(taps, dim=1), logits.argmax(1))
        if ranges is None:
            raise ValueError("expected at least one batch to fit on, got none (an iterator can be read only once)")
        self.ranges = ranges.check()
        return self

    def deviations(self, network: Network, batches: Iterable[Tensor]) -> Tensor:
        """Return the deviations of each sample divided by its largest softmax probability, shape (n, taps)."""
        if self.ranges is None:
            raise ValueError("Gram is not fitted: call fit(network, training_batches) first")
        if network.head.out_features != self.ranges.n_classes:
            raise ValueError(
                f"expected a network of {self.ranges.n_classes} classes, as in fit(), got {network.head.out_features}: "
                "fit Gram with this network first"
            )
        parts = []
        with torch.inference_mode():
            for batch in batches:
                taps, logits = self._features_and_logits(network, batch)
                confidence, predicted = logits.softmax(1).max(1)
                parts.append(self.ranges.deviations(torch.cat(taps, dim=1), predicted) / confidence[:, None])
        if not parts:
            raise ValueError("expected at least one batch to score, got none (an iterator can be read only once)")
        return torch.cat(parts)

    def _features_and_logits(self, network: Network, batch: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the features of every tap, each of shape (n, 10 · channels), and the logits (n, C)."""
        if network.training:
            raise ValueError("expected a network in evaluation mode, got one in training mode: call network.eval()")
        taps: list[Tensor] = []

        def tap(activation: Tensor) -> None:
            taps.append(self._features(activation.contiguous()).flatten(1))

        embeddings = network.embed(batch, tap)
        return taps, network.head(embeddings)


def validation_splits(n: int, repeats: int = 10, seed: int = 0) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Yield (validation rows, other rows) of n samples ``repeats`` times: a random tenth and the rest, both sorted.

    >>> [(len(validation), len(rest)) for validation, rest in validation_splits(50, repeats=2)]
    [(5, 45), (5, 45)]
    """
    if n < 10:
        raise ValueError(f"expected at least 10 samples to hold out a tenth of, got {n}")
    rng = np.random.default_rng(seed)
    for _ in range(repeats):
        rows = rng.permutation(n)
        yield np.sort(rows[: n // 10]), np.sort(rows[n // 10 :])


def gram_score(deviations: Tensor, validation_deviations: Tensor) -> Tensor:
    """Return the Gram score: larger = more out-of-distribution.

    Args:
        deviations: of the samples to score, shape (n, taps).
        validation_deviations: of in-distribution samples outside of the training set, shape (m, taps).

    Returns:
        The mean over taps of deviation / (sum of the tap's validation deviations + 1e-7), shape (n,), in float64.

    >>> gram_score(torch.tensor([[3.0, 8.0]]), torch.tensor([[1.0, 1.0], [2.0, 3.0]]))  # mean of 3/3 and 8/4
    tensor([1.5000], dtype=torch.float64)
    """
    _check_taps(deviations, validation_deviations)
    return (deviations.double() / (validation_deviations.double().sum(0) + _EPSILON)).mean(1)


def gram_pnml_regret(
    log_probabilities: Tensor, leverage: Tensor, deviations: Tensor, validation_deviations: Tensor
) -> Tensor:
    """Return the regret in nats of embeddings scaled by the deviations of their samples (Gram+pNML).

    A unit-norm embedding is multiplied by the square root of s = mean over taps of deviation / standard deviation of
    the tap's validation deviations. That multiplies its leverage by s and leaves the probabilities unchanged. A tap
    with constant validation deviations has a standard deviation of 1e-7.

    Row i of the first three arguments must belong to the same sample. The published code pairs deviations grouped by
    predicted class with embeddings in their original order, which belong to different samples.

    Args:
        log_probabilities: of the unit-norm embeddings, shape (n, C).
        leverage: h of the unit-norm embeddings, shape (n,), infinite outside of the span of the training set.
        deviations: shape (n, taps).
        validation_deviations: of in-distribution samples outside of the training set, shape (m, taps).

    Returns:
        Shape (n,), in the dtype of ``log_probabilities``.

    >>> h, log_p = torch.tensor([1.0, 1.0]), torch.tensor([[0.5, 0.5]]).log().expand(2, 2)
    >>> gram_pnml_regret(log_p, h, torch.tensor([[0.0], [1e9]]), torch.tensor([[1.0], [3.0]]))
    tensor([0.0000, 0.2877])
    """
    _check_taps(deviations, validation_deviations)
    rows = len(log_probabilities), len(leverage), len(deviations)
    if len(set(rows)) > 1:
        raise ValueError(f"expected as many log_probabilities, leverages and deviations, got {rows} rows")
    spread = validation_deviations.double().std(0, correction=0).clamp_min(_EPSILON)
    scale = (deviations.double() / spread).mean(1)
    scaled = torch.where(scale > 0, scale * leverage, 0.0)  # a zero vector has no leverage, even where 0 · ∞ is NaN
    regret: Tensor = theorem.regret(log_probabilities, xtg(scaled).to(log_probabilities.dtype), log=True)
    return regret


def _check_taps(deviations: Tensor, validation: Tensor) -> None:
    if (
        deviations.ndim != 2
        or validation.ndim != 2
        or deviations.shape[1] != validation.shape[1]
        or not len(validation)
    ):
        raise ValueError(
            "expected deviations of shape (n, taps) and validation_deviations of shape (m, taps) with m ≥ 1, got "
            f"{tuple(deviations.shape)} and {tuple(validation.shape)}"
        )


class GramMethod(Method):
    """The Gram score; combined with pNML, the regret of embeddings scaled by the deviations.

    Both need in-distribution images outside of the training set: :meth:`trials` holds out a tenth of ``ind`` per trial,
    and the scores are those of the current trial.
    """

    name = "gram"

    def fit(self, train: View) -> GramMethod:
        """Fit the ranges of the Gram features of the training set."""
        super().fit(train)
        self.gram = Gram(compiled=train.device.type == "cuda").fit(train.network, train.inputs("Gram"))
        self._held_out: Tensor | None = None
        return self

    def trials(self, ind: View, ood: View) -> Iterator[Rows]:
        """Hold out ten random tenths of ``ind``, one per trial, and yield the other rows."""
        del ood
        deviations = self._deviations(ind)
        for held_out, rest in validation_splits(len(ind)):
            self._held_out = deviations[held_out]
            yield rest

    def score(self, view: View) -> Tensor:
        """Return the Gram score of every image, shape (n,)."""
        return gram_score(self._deviations(view), self._validation())

    def score_with_pnml(self, view: View) -> Tensor:
        """Return the regret of the scaled embedding of every image, shape (n,)."""
        log_p, leverage = view.cached(("unit", id(self.detector)), lambda: _unit_norm(view, self.detector))
        return gram_pnml_regret(log_p, leverage, self._deviations(view), self._validation())

    def _deviations(self, view: View) -> Tensor:
        return view.cached(("gram", id(self)), lambda: self.gram.deviations(view.network, view.inputs("Gram")))

    def _validation(self) -> Tensor:
        if self._held_out is None:
            raise ValueError("Gram scores need held-out images: call score() while iterating over trials(ind, ood)")
        return self._held_out


class Oecc(GramMethod):
    """OECC (Papadopoulos et al., 2021) as the paper runs it: Gram on a network tuned with OECC's loss."""

    name = "oecc"


def _unit_norm(view: View, detector: Detector | PublishedDetector) -> tuple[Tensor, Tensor]:
    """Return log-probabilities (n, C) and leverage (n,) of the embeddings scaled to norm 1."""
    norms = view.embeddings.norm(dim=1, keepdim=True)
    unit = view.embeddings / norms.clamp_min(torch.finfo(norms.dtype).tiny)
    head = view.network.head
    with torch.inference_mode():
        log_p = (unit.double() @ head.weight.double().T + head.bias.double()).log_softmax(dim=1)
    # An all-zero embedding has no direction; its leverage is infinite, as for one outside of the training span.
    return log_p, torch.where(norms[:, 0] > 0, detector.subspace.leverage(unit), torch.inf)
