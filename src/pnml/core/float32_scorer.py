"""Regrets in float32, faster than in float64, each with a bound on its error.

**The bound.** A sum of M products xᵀw computed in float32 is off by at most ``M u |x|ᵀ|w|``, u = 2⁻²⁴; the bound used
here is ``2 √M u |x|ᵀ|w|``, which independent rounding errors exceed with negligible probability. With W the whitening,
√h = ‖Wᵀx‖ is therefore off by at most ``2 √M u Σ_k |x_k| ‖W_k‖``, where ‖W_k‖² is the k-th diagonal entry of S⁺. A
typical training row has x_k² = S_kk / N and h = rank / N, so the relative error of its √h is about ::

    2 √M u Σ_k √(S_kk S⁺_kk) / √rank

The products under the root are variance inflation factors: float32 does not fail at the condition number of S, because
a weak feature does no harm, but at features that are nearly linear combinations of others.

Logits are computed from a weight and a bias less their means over the classes, which the softmax does not see. What is
left of the bias is in the bound with 4 u of its largest size.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import DeviceConstants, at_least, is_recorded, namespace, precision
from pnml.backend.rows import by_chunk, squares
from pnml.core import theorem
from pnml.core.depth import embedding_share, leverages, profile_of, total_of
from pnml.core.profile import error_of_excess
from pnml.core.subspace import leverage, xtg

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.backend.arrays import Array
    from pnml.core.model import ScoringModel
    from pnml.core.subspace import Subspace

LARGEST_ERROR = 0.01
"""The largest relative error of a regret computed in float32; rows that may exceed it are computed in float64."""

_SMALLEST_REGRET = 1e-30  # below it, float32 runs out of exponents
_ROUNDING = 2.0**-24
_LARGEST_OF_ROOT = 0.02  # relative error of the root of a leverage, for the bounds below to hold
_SAFE_LOGIT = 50.0  # exp of ± this neither overflows nor vanishes in float32, nor does the sum over classes


class Float32Scorer:
    """Regrets in float32, each with a bound on its error.

    Attributes:
        typical_error: the bound on half the relative error of a typical training row's leverage.
    """

    def __init__(self, model: ScoringModel) -> None:
        self.model = model
        weight, bias = model.centred_head
        self._sum_error = _sum_error(model.n_features)
        # How far rounding reaches into a logit: per unit of the embedding's norm, and from the bias.
        longest, largest = float(np.linalg.norm(weight, axis=0).max()), float(np.abs(bias).max())
        self._error_per_norm, self._error_of_bias = self._sum_error * longest, 4 * _ROUNDING * largest
        self._may_overflow = not (model.unit_norm and longest + largest < _SAFE_LOGIT)
        # How far rounding reaches per unit of each feature into the root of a leverage and, without depth, into the
        # length outside the span.
        reaches = [_reach(subspace) for subspace in self._subspaces]
        if model.depth is None:
            reaches = [np.stack([reaches[0], self._sum_error * np.sqrt(squares(model.subspace.null_space))], axis=1)]
        self._reach = DeviceConstants(*reaches)
        errors = [
            _typical_error(s, r if r.ndim == 1 else r[:, 0]) for s, r in zip(self._subspaces, reaches, strict=True)
        ]
        self._floors = [4 * _ROUNDING * float(np.sqrt(squares(s.whitening)).max()) for s in self._subspaces if s.rank]
        if model.depth is None:
            self.typical_error = errors[0]
        else:
            floors = [
                floor * math.sqrt(s.count / max(1, s.rank))
                for floor, s in zip(self._floors[:2], self._subspaces[:2], strict=False)
            ]
            self.typical_error = float(1.5 * (errors[0] + floors[0]) + errors[1] + floors[1])

    @property
    def _subspaces(self) -> list[Subspace]:
        depth = self.model.depth
        return [self.model.subspace] if depth is None else [scatter.subspace for scatter in depth.scatters]

    @property
    def is_accurate(self) -> bool:
        """Whether most regrets will be within ``LARGEST_ERROR``, judged by the training set."""
        allowed = LARGEST_ERROR
        if self.model.depth is not None:
            allowed = self._allowed_error(self._error_per_norm, math.log(self.model.n_classes / self.model.label_noise))
        return self._subspaces[0].rank > 0 and 2 * self.typical_error <= allowed

    def score(self, x: Array, eps: float) -> tuple[Array, Array]:
        """Return the regret of embeddings (n, M) in float32, and which are certainly within ``LARGEST_ERROR``."""
        xp, model = namespace(x), self.model
        constants, reach = model.constants.to(x, xp.float32), self._reach.to(x, xp.float32)
        args: tuple[Any, ...] = xp, constants, reach
        chunk: Callable[..., Any] = self._score_deep
        if model.depth is None:
            chunk, args = self._score_plain, (*args, model.subspace.outside_limits(eps))
        found: tuple[Array, Array] = by_chunk(chunk, x, xp.float32, *args, width=model.width)
        return found

    def _score_plain(
        self, x: Array, xp: Any, constants: tuple[Array, ...], reach: tuple[Array], limits: tuple[float, float]
    ) -> tuple[Array, Array]:
        """Score by the leverage of the paper."""
        weight, bias, whitening, null_space = constants
        squared_norms = squares(x)
        norms = xp.sqrt(squared_norms)
        z = x @ weight
        h = leverage(x, whitening, null_space, limits)
        reached = xp.abs(x) @ reach[0]
        if self.model.unit_norm:  # products are scaled instead of rows: there are fewer of them
            z /= norms[:, None]
            regret, steepness = self._regret_of(xp, z, bias, h / squared_norms)
            logit_error: Any = self._error_per_norm
        else:
            regret, steepness = self._regret_of(xp, z, bias, h)
            logit_error = self._error_per_norm * norms
        allowed = self._allowed_error(logit_error, steepness)
        trusted = reached[:, 0] ** 2 <= (allowed / 2.1) ** 2 * h  # r (2 + r) ≤ 2.1 r for r ≤ 0.1
        trusted &= (regret > _SMALLEST_REGRET) & (allowed > 0) & _are_safe(squared_norms) & (reached[:, 0] < 1e10)
        if null_space.shape[1]:  # rounding may move the length outside the span by a tenth of its limit
            trusted &= reached[:, 1] <= 0.1 * math.sqrt(limits[0]) * norms
        return regret, trusted

    def _score_deep(
        self, x: Array, xp: Any, constants: tuple[Array, ...], reach: tuple[Array, ...]
    ) -> tuple[Array, Array]:
        """Score by the leverage about class means, earlier layers included."""
        depth = self.model.depth
        assert depth is not None  # noqa: S101 - chosen by score
        weight, bias, *scatters = constants
        embeddings = x[:, : self.model.n_features]
        squared_norms = squares(embeddings)
        norms = xp.sqrt(squared_norms)
        embeddings = embeddings / norms[:, None]
        z = embeddings @ weight
        logits = z + bias
        classes = xp.argmax(logits, axis=-1)
        # The class is certain if no other one is within rounding of the first.
        margin = 4 * (self._error_per_norm + self._error_of_bias)
        rivals = logits > xp.max(logits, axis=-1, keepdims=True) - margin
        certain = xp.sum(xp.astype(rivals, xp.int32), axis=-1) == 1
        found = leverages(x, embeddings, classes, scatters, depth)
        profile = profile_of(constants, depth)
        h = total_of(found.raw, depth, profile)
        regret, steepness = self._regret_of(xp, z, bias, h)
        # The relative error r of every √h, and what they make of the error of h.
        roots = xp.sqrt(at_least(found.raw, 1e-35))
        parts = enumerate(zip(found.centred, reach, self._floors, strict=True))
        errors = [(xp.abs(d) @ c + floor) / roots[:, number] for number, (d, c, floor) in parts]
        own = embedding_share(found.raw[:, 0], found.raw[:, 1], depth.typical)
        error = own * (3.2 * errors[0] + 2.2 * errors[1])  # √h h / h_0, for r below 0.02
        trusted = certain & (errors[0] < _LARGEST_OF_ROOT) & (errors[1] < _LARGEST_OF_ROOT)
        of_excess, holds = error_of_excess(found.raw, xp.stack(errors, axis=1), depth.profile, profile)
        error = error + of_excess
        trusted &= holds
        allowed = self._allowed_error(self._error_per_norm, steepness)
        trusted &= error <= allowed * h
        trusted &= (regret > _SMALLEST_REGRET) & (allowed > 0) & _are_safe(squared_norms)
        for layer in depth.layers:
            trusted &= _are_safe(squares(x[:, layer.start : layer.stop]))
        return regret, trusted

    def _allowed_error(self, logit_error: Any, steepness: Any) -> Any:
        """Return the relative error of the leverage that changes the regret by at most ``LARGEST_ERROR``.

        A relative error r of h changes the regret by at most r (1 − t)(1 + t s) with s = max|log p|, and
        (1 − t)(1 + t s) ≤ (1 + s)² / 4s; an error e of a logit changes it by at most 6 e.
        """
        allowed = LARGEST_ERROR - 6 * (self._error_of_bias + logit_error + _ROUNDING * steepness)
        return allowed * 4 * steepness / (1 + steepness) ** 2

    def _regret_of(self, xp: Any, z: Array, bias: Array, h: Array) -> tuple[Array, Any]:
        """Return the regret of products (n, C), which are overwritten, and leverages (n,); and the largest |log p|."""
        noise, n_classes, t = self.model.label_noise, z.shape[-1], xtg(h)[:, None]
        z += bias
        if not noise:
            log_p = theorem.log_softmax(z)
            return theorem.regrets(log_p, t), -xp.min(log_p, axis=-1)
        if self._may_overflow:
            z -= xp.max(z, axis=-1, keepdims=True)
        p = xp.exp(z)
        p *= ((1 - noise) / p.sum(-1))[:, None]
        p += noise / n_classes
        # theorem.regrets(log p, t, p) without its temporary arrays, which would take half of the time.
        log_p = xp.log(p)
        log_p *= -t
        v = xp.expm1(log_p)
        v *= p
        p -= 1
        p *= v
        v += 1
        p /= v
        return xp.log1p(-p.sum(-1)), math.log(n_classes / noise)


def _sum_error(n_features: int) -> float:
    """Return how far rounding moves a sum of M products, relative to the sum of their sizes."""
    return (min(n_features, 2 * math.sqrt(n_features)) + 4) * _ROUNDING


def _reach(subspace: Subspace) -> np.ndarray[Any, Any]:
    """Return how far rounding reaches into the root of a leverage, per unit of each feature, (M,)."""
    return np.asarray(_sum_error(subspace.n_features) * np.sqrt(squares(subspace.whitening)))


def _typical_error(subspace: Subspace, reach: np.ndarray[Any, Any]) -> float:
    """Return the relative error of a typical training row's √h."""
    strength = np.sqrt(squares(subspace.eigenvectors * np.sqrt(subspace.eigenvalues)))  # √S_kk
    return float(strength @ reach) / math.sqrt(max(1, subspace.rank))


def _are_safe(squared_norms: Array) -> Array:
    """Return for which rows no square overflowed or vanished."""
    return (squared_norms > 1e-30) & (squared_norms < 1e30)


def multiplies_in_float32(rows: Array) -> bool:
    """Return whether rows came in float32 or less, and products of them are computed in no less than float32."""
    if precision(rows) < 1e-12:
        return False
    if not compat.is_torch_array(rows):
        return True
    if is_recorded(rows):
        return False
    import torch

    try:
        full = torch.get_float32_matmul_precision() == "highest"
    except RuntimeError:  # torch has two ways to set it, and refuses to answer when both were used
        return False
    return full and not torch.is_autocast_enabled(rows.device.type)
