"""The arithmetic of the paper's published code, to be compared with ours.

The published code sums and inverts the correlation of unit-norm embeddings in float32, by a pseudo-inverse that cuts
singular values below 1e-15 of the largest: none, as rounding in float32 is 1e-7 of it. Directions that the training set
hardly has get a leverage made of rounding, which may be negative, so its absolute value is taken. There is no second
branch for embeddings outside of the span.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import normalize

from pnml.core import theorem
from pnml.core.subspace import xtg
from pnml_bench.methods.protocol import Method

if TYPE_CHECKING:
    from torch import Tensor

    from pnml_bench.methods.view import View

_RCOND = 1e-15


class PublishedLeverage:
    """|xᵀPx| with P the pseudo-inverse in float32 of Σxxᵀ of some rows (N, M).

    >>> PublishedLeverage(torch.tensor([[1.0, 0.0], [0.0, 2.0]])).leverage(torch.tensor([[0.0, 2.0]]))
    tensor([1.])
    """

    def __init__(self, rows: Tensor) -> None:
        rows = rows.float()
        self._inverse = torch.linalg.pinv((rows.T @ rows).cpu(), rtol=_RCOND).to(rows.device)

    def leverage(self, x: Tensor) -> Tensor:
        """Return the leverage of every row of x (n, M), shape (n,), in float32; finite for every row."""
        x = x.float()
        leverage: Tensor = ((x @ self._inverse) * x).sum(dim=1).abs()
        return leverage


class PublishedDetector:
    """What methods use of a :class:`~pnml.Detector` with ``embedding_scale="paper"``, by the published arithmetic.

    Args:
        weight: of the last layer, shape (C, M).
        bias: shape (C,).
        embeddings: of the training set, shape (N, M).
    """

    def __init__(self, weight: Tensor, bias: Tensor, embeddings: Tensor) -> None:
        self._weight, self._bias = weight.double(), bias.double()
        self.subspace = PublishedLeverage(normalize(embeddings, dim=1))

    def score(self, embeddings: Tensor) -> Tensor:
        """Return the regret of every embedding in nats, shape (n,), in float64."""
        unit = normalize(embeddings, dim=1)
        log_p = (unit.double() @ self._weight.T + self._bias).log_softmax(dim=1)
        regret: Tensor = theorem.regret(log_p, xtg(self.subspace.leverage(unit).double()), log=True)
        return regret


class PublishedRegret(Method):
    """The regret as in the paper, by the arithmetic of the published code."""

    name = "pnml-published"
    composes = False

    def fit(self, train: View) -> PublishedRegret:
        """Fit on the training set."""
        head = train.network.head
        self.published = PublishedDetector(head.weight.detach(), head.bias.detach(), train.embeddings)
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The arithmetic."""
        return {"arithmetic": "published", "rcond": _RCOND}

    def score(self, view: View) -> Tensor:
        """Return the regret of every image in nats, shape (n,)."""
        return self.published.score(view.embeddings)
