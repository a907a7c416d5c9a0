"""Gram and OECC as methods: fitted on the training set, normalised on tenths of the in-distribution test set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pnml_bench.methods.gram import Gram, gram_pnml_regret, gram_score, validation_splits
from pnml_bench.methods.protocol import Method

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from pnml.core.detector import Detector
    from pnml_bench.methods.protocol import Rows
    from pnml_bench.methods.published import PublishedDetector
    from pnml_bench.methods.view import View


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
