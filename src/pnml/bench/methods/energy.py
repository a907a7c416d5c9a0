"""Energy (Liu et al., 2020) at temperature 1; the paper applies it to a network tuned with the energy loss."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml.bench.methods.protocol import Method

if TYPE_CHECKING:
    from torch import Tensor

    from pnml.bench.methods.view import View


def energy_score(logits: Tensor) -> Tensor:
    """Return −logsumexp of logits (n, C), shape (n,), in float64.

    >>> import torch
    >>> energy_score(torch.tensor([[0.0, 0.0]]))
    tensor([-0.6931], dtype=torch.float64)
    """
    return -logits.double().logsumexp(dim=-1)


class Energy(Method):
    """−logsumexp of the logits; combined with pNML, the regret."""

    name = "energy"

    def score(self, view: View) -> Tensor:
        """Return the energy of every image, shape (n,)."""
        return energy_score(view.logits)
