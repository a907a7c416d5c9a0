"""Gram as a method: fitted on the training set, normalised on tenths of the in-distribution test set."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from pnml.bench.methods.gram import Gram, gram_pnml_regret, gram_score, splits
from pnml.bench.methods.protocol import Method

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from pnml.bench.methods.protocol import Rows
    from pnml.bench.methods.view import View
    from pnml.core.detector import Detector


class GramMethod(Method):
    """The Gram score; with pNML, the regret of embeddings stretched by the deviations.

    Both need in-distribution images that the network was not trained on: :meth:`trials` holds out a tenth of them at a
    time, and scores are those of the trial under way.
    """

    name = "gram"

    def fit(self, train: View, detector: Detector) -> GramMethod:
        """Learn the ranges of the training set's Gram features."""
        super().fit(train, detector)
        self.gram = Gram(compiled=train.device.type == "cuda").fit(train.network, train.inputs("Gram"))
        self._held_out: Tensor | None = None
        return self

    def trials(self, ind: View, ood: View) -> Iterator[Rows]:
        """Hold out ten seeded tenths of ``ind``, one after the other, and yield the other rows."""
        del ood
        deviations = self._deviations(ind)
        for held_out, rest in splits(len(ind)):
            self._held_out = deviations[held_out]
            yield rest

    def score(self, view: View) -> Tensor:
        """Give the Gram score of every image, shape (n,)."""
        return gram_score(self._deviations(view), self._validation())

    def score_with_pnml(self, view: View) -> Tensor:
        """Give the regret of every image's stretched embedding, shape (n,)."""
        log_p, leverage = view.once(("unit", id(self.detector)), lambda: _unit_norm(view, self.detector))
        return gram_pnml_regret(log_p, leverage, self._deviations(view), self._validation())

    def _deviations(self, view: View) -> Tensor:
        return view.once(("gram", id(self)), lambda: self.gram.deviations(view.network, view.inputs("Gram")))

    def _validation(self) -> Tensor:
        if self._held_out is None:
            raise ValueError("Gram has no held-out images to compare with: score within trials(ind, ood)")
        return self._held_out


def _unit_norm(view: View, detector: Detector) -> tuple[Tensor, Tensor]:
    """Give log-probabilities (n, C) and leverage (n,) of the embeddings scaled to norm 1."""
    norms = view.embeddings.norm(dim=1, keepdim=True)
    unit = view.embeddings / norms.clamp_min(torch.finfo(norms.dtype).tiny)
    head = view.network.head
    with torch.inference_mode():
        log_p = (unit.double() @ head.weight.double().T + head.bias.double()).log_softmax(dim=1)
    # An embedding without a direction is one that the training set says nothing about.
    return log_p, torch.where(norms[:, 0] > 0, detector.subspace.leverage(unit), torch.inf)
