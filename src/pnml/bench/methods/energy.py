"""Energy (Liu et al., 2020) at temperature 1. The paper scores the network tuned for it with this."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml.bench.methods.protocol import Method

if TYPE_CHECKING:
    from torch import Tensor

    from pnml.bench.methods.view import View


def energy_score(logits: Tensor) -> Tensor:
    """Give −logsumexp of logits (n, C), shape (n,), in float64.

    >>> import torch
    >>> energy_score(torch.tensor([[0.0, 0.0]]))
    tensor([-0.6931], dtype=torch.float64)
    """
    return -logits.double().logsumexp(dim=-1)


class Energy(Method):
    """−logsumexp of the logits; with pNML, the regret."""

    name = "energy"

    def score(self, view: View) -> Tensor:
        """Give the energy of every image, shape (n,)."""
        return energy_score(view.logits)
