"""Scores computed from the logits: Baseline and Energy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml_bench.methods.protocol import Method

if TYPE_CHECKING:
    from torch import Tensor

    from pnml_bench.methods.view import View


def msp_score(logits: Tensor) -> Tensor:
    """Return 1 − max softmax of logits (n, C), shape (n,), in float64.

    >>> import torch
    >>> msp_score(torch.tensor([[0.0, 0.0], [100.0, 0.0]]))
    tensor([0.5000, 0.0000], dtype=torch.float64)
    """
    return 1 - logits.double().softmax(dim=-1).amax(dim=-1)


class Baseline(Method):
    """1 − max softmax (Hendrycks and Gimpel, 2017); combined with pNML, the regret."""

    name = "baseline"

    def score(self, view: View) -> Tensor:
        """Return 1 − max softmax of every image, shape (n,)."""
        return msp_score(view.logits)


class Energy(Method):
    """−logsumexp of the logits (Liu et al., 2020, temperature 1); combined with pNML, the regret.

    The paper applies it to a network tuned with the energy loss.
    """

    name = "energy"

    def score(self, view: View) -> Tensor:
        """Return the energy of every image, shape (n,), in float64."""
        return -view.logits.double().logsumexp(dim=-1)
