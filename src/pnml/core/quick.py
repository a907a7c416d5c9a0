"""Regrets in float32, each with a bound on its error, so that what float32 cannot do is left to float64.

A sum of M products xᵀw computed in float32 is off by at most ``M u |x|ᵀ|w|``, u = 2⁻²⁴, and by ``2 √M u |x|ᵀ|w|`` with
much to spare where its roundings do not conspire. With W the whitening, √h = ‖Wᵀx‖ is therefore off by no more than
``2 √M u Σ_k |x_k| ‖W_k‖``, where ‖W_k‖² is the k-th diagonal entry of S⁺. A typical training row has x_k² = S_kk / N
and h = rank / N, so the share of its √h that may be wrong is about ::

    2 √M u Σ_k √(S_kk S⁺_kk) / √rank

The products under the root are the variance inflation factors: they say how hard a feature is to tell from the others.
So float32 does not break at the condition of S, since a weak feature does no harm, but at features that nearly repeat
each other.
"""

from __future__ import annotations

import math
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import Array, DeviceConstants, precision
from pnml.backend.rows import by_chunk, squares
from pnml.core.scoring import compiling, ingredients

if TYPE_CHECKING:
    from pnml.core.scaling import EmbeddingScale
    from pnml.core.subspace import Subspace

LARGEST_ERROR = 0.01
"""How far a regret computed in float32 may be from the exact one, relative to it; beyond, it is computed in float64."""

SMALLEST_REGRET = 1e-30
"""Below it, float32 runs out of exponents."""

_ROUNDING = 2.0**-24


class Quick:
    """A detector's scores in float32.

    Args:
        weight: the last layer's weight, shape (C, M).
        bias: its bias, shape (C,).
        subspace: the geometry of the training embeddings.
        scale: the ``embedding_scale`` of the :class:`~pnml.Detector`.
        label_noise: its ``label_noise``.

    Attributes:
        typical_error: the bound on the relative error of a typical training row's leverage.
        constants: transposed weight, bias, whitening, null space and reach.
    """

    def __init__(
        self,
        weight: np.ndarray[Any, Any],
        bias: np.ndarray[Any, Any],
        subspace: Subspace,
        scale: EmbeddingScale,
        *,
        label_noise: float = 0.0,
    ) -> None:
        self.subspace = subspace
        self.options: dict[str, Any] = {"embedding_scale": scale, "label_noise": label_noise}
        # How far rounding reaches per unit of each feature, (M, 3): into √h, the logits, the length beyond the span.
        roots = [np.sqrt(squares(factor)) for factor in (subspace.whitening, subspace.null_space)]
        constant = (min(subspace.n_features, 2 * math.sqrt(subspace.n_features)) + 4) * _ROUNDING
        reach = constant * np.stack([roots[0], np.abs(weight).max(axis=0), roots[1]], axis=1)
        strength = np.sqrt(squares(subspace.eigenvectors * np.sqrt(subspace.eigenvalues)))  # √S_kk
        self.typical_error = 2 * float(strength @ reach[:, 0]) / math.sqrt(max(1, subspace.rank))
        self.constants = DeviceConstants(weight.T, bias, subspace.whitening, subspace.null_space, reach)

    def suits(self, x: Array) -> bool:
        """Tell whether most regrets will be certain enough, by the training set and by how ``x`` is multiplied."""
        if self.subspace.rank == 0 or self.typical_error > LARGEST_ERROR:
            return False
        return compat.is_numpy_array(x) or (compat.is_torch_array(x) and _multiplies_in_float32())

    def score(self, x: Array, *, compiled: bool = False) -> tuple[Array, Array]:
        """Give the regrets of embeddings (n, M) of NumPy or PyTorch in float32, and which are within the limit."""
        xp = compat.array_namespace(x)
        weight, bias, whitening, null_space, reach = self.constants.to(x, xp.float32)
        limits = self.subspace.outside_limits(precision(x))
        constants = (weight, bias), (whitening, null_space), limits, reach
        with compiling(quick_regret) if compiled else nullcontext(quick_regret) as function:
            parts = by_chunk(lambda chunk: function(chunk, *constants, **self.options), x, xp.float32)
        regrets, trusted = (xp.concat(column) for column in zip(*parts, strict=True))
        return regrets, trusted


def quick_regret(
    x: Array,
    head: tuple[Array, ...],
    basis: tuple[Array, ...],
    outside_limits: tuple[float, float],
    reach: Array,
    **options: Any,
) -> tuple[Array, Array]:
    """Give the regret of embeddings (n, M) in float32, and whether it is certainly within ``LARGEST_ERROR``.

    The arguments and options are those of :func:`~pnml.core.scoring.ingredients` in float32; ``reach`` (M, 3) is of
    :class:`Quick`. The share of h that may be wrong carries over to the regret by a factor of
    (1 − t)(1 + t max|log p|) at most.
    """
    xp = compat.array_namespace(x)
    part = ingredients(x, head, basis, outside_limits, in_range=True, **options)
    reached = xp.abs(x) @ reach
    doubts = reached * part.scale[:, None]
    share, t, steepness = doubts[:, 0] / xp.sqrt(part.h), part.t[:, 0], -xp.min(part.log_p, axis=-1)
    error = share * (2 + share) * (1 - t) * (1 + t * steepness) + 4 * (doubts[:, 1] + _ROUNDING * steepness)
    trusted = (error <= LARGEST_ERROR) & (part.regret > SMALLEST_REGRET)
    # No square overflows or vanishes on the way.
    trusted = trusted & (xp.max(reached, axis=-1) < 1e10) & (part.scale > 1e-15) & (part.scale < 1e15)
    if basis[1].shape[1]:  # whether a row leaves the span may not depend on rounding, give or take a tenth of the limit
        limit = math.sqrt(outside_limits[0]) * xp.sqrt(squares(x)) * part.scale
        trusted = trusted & (doubts[:, 2] <= 0.1 * limit)
    return part.regret, trusted


def _multiplies_in_float32() -> bool:
    """Tell whether PyTorch multiplies float32 matrices as such; it can be told to use half the digits instead."""
    import torch

    try:
        return torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # torch has two ways to set it, and refuses to say when both were used
        return False
