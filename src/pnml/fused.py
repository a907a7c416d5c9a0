"""Regrets in one kernel on an NVIDIA GPU, by products of float16, which keeps eleven binary digits of each factor.

Each entry of an embedding x and of the whitening W is rounded to the nearest number of float16 and so off by up to
u = 2⁻¹¹ of itself. Where these roundings do not conspire, they move Wᵀx by about ``√2 u √(Σ_k x_k² ‖W_k‖²)``, where
‖W_k‖² is the k-th diagonal entry of S⁺. A typical training row has x_k² = S_kk / N and h = rank / N, so the share of
its √h that is wrong is about ::

    √2 u √(Σ_k S_kk S⁺_kk / rank)

or less, as most of what moves Wᵀx does not move its length. Logits, and with them log p, are off likewise. The kernel
estimates both for every row. A row that may be further off than ``LARGEST_ERROR`` is not given, nor is one whose
squares leave float32. It is an estimate: a bound like those of :mod:`pnml.quick`, for roundings that all add up, would
be too wide for any row. And float16 cannot tell whether a row leaves the span of the training rows, so those must span
everything.

float16 has few exponents, and keeps its eleven digits from 2⁻¹⁴ to 65,504 only. :mod:`pnml._factors` scales features,
weight and whitening such that typical entries are about 1, and the kernel each row, by what some of its features are.
What is smaller than 2⁻¹⁴ then counts in the estimate as if it were that; a row with an entry that is larger than 65,504
is not given. Sums are of float32, as is all that comes after the products. Label noise keeps log p from being steep,
which the estimate makes no use of.

There are two kernels: :mod:`pnml._hopper_kernel` for GPUs like the H100 and H200, and :mod:`pnml._fused_kernel` for all
others, and where the first does not suit. They do the same; the first is about twice as fast.
"""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar

import array_api_compat as compat
import numpy as np

from pnml._arrays import Array, precision
from pnml._factors import factors
from pnml._rows import by_chunk, squares, suit_kernels
from pnml.quick import LARGEST_ERROR

if TYPE_CHECKING:
    from pnml._factors import Factors
    from pnml._fused_kernel import Blocks
    from pnml._hopper_kernel import Tiles
    from pnml.scaling import EmbeddingScale
    from pnml.subspace import Subspace

MOST_CLASSES = 256
"""How many logits of a row fit into the registers."""

_ROUNDING = math.sqrt(2) * 2.0**-11  # of a product's two factors


class Fused:
    """A detector's scores in float16; the arguments are those of :class:`~pnml.quick.Quick`.

    Attributes:
        typical_error: the estimated error of a typical training row's regret, relative to it.
        hopper: whether the kernel for Hopper is used where it suits: of all detectors, until it fails.
    """

    hopper: ClassVar[bool] = True

    def __init__(
        self,
        weight: np.ndarray[Any, Any],
        bias: np.ndarray[Any, Any],
        subspace: Subspace,
        scale: EmbeddingScale,
        *,
        label_noise: float = 0.0,
    ) -> None:
        self.weight, self.bias, self.subspace = weight, bias, subspace
        self.embedding_scale, self.label_noise = scale, label_noise
        strength = squares(subspace.eigenvectors * np.sqrt(subspace.eigenvalues))  # S_kk
        with np.errstate(all="ignore"):  # a weight too large makes an error too large
            of_class = weight**2 @ strength
            largest = of_class.max() / max(of_class.mean(), np.finfo(np.float64).tiny)
            # How far rounding reaches per unit of each feature, (2, M): into √h, and into logits of the largest class.
            logits = np.sqrt((weight**2).mean(axis=0) * largest)
            self.reach = _ROUNDING * np.stack([np.sqrt(squares(subspace.whitening)), logits])
            of_root, of_logits = np.sqrt(self.reach**2 @ strength)
        self.typical_error = 2 * float(
            of_root / math.sqrt(max(1, subspace.rank)) + of_logits / math.sqrt(max(1, subspace.count))
        )

    def suits(self, x: Array) -> bool:
        """Tell whether most regrets will be certain enough, by the training set, and ``x`` lies where kernels run."""
        if self.subspace.rank < self.subspace.n_features or len(self.weight) > MOST_CLASSES:
            return False
        return self.typical_error <= LARGEST_ERROR and _is_taken(x)

    def score(self, x: Array, *, compiled: bool = False) -> tuple[Array, Array]:  # noqa: ARG002 - as of Quick
        """Give the regrets of embeddings (n, M) of PyTorch in float32, and which are within the limit.

        Args:
            x: embeddings.
            compiled: makes no difference, as the kernel always is.
        """
        xp = compat.array_namespace(x)
        whole = x.dtype == xp.float32  # or a copy of it would have to be
        found = self._regrets(x) if whole else xp.concat(by_chunk(self._regrets, x, xp.float32))
        return found, xp.isfinite(found)

    def _regrets(self, x: Array) -> Array:
        from pnml import _fused_kernel, _hopper_kernel

        options: dict[str, Any] = {"unit_norm": self.embedding_scale != "natural", "label_noise": self.label_noise}
        x = x.contiguous()
        if Fused.hopper and _hopper_kernel.suits(x, len(self.weight)):
            try:
                return _hopper_kernel.regrets(x, self._tiles, **options)
            except Exception:  # noqa: BLE001 - Triton calls experimental what it needs, and the other does without
                Fused.hopper = False
        return _fused_kernel.regrets(x, self._blocks, **options)

    @cached_property
    def _factors(self) -> Factors:
        return factors(self.weight, self.bias, self.subspace, self.reach)

    @cached_property
    def _tiles(self) -> Tiles:
        from pnml._hopper_kernel import Tiles

        return Tiles(self._factors)

    @cached_property
    def _blocks(self) -> Blocks:
        from pnml._fused_kernel import Blocks

        return Blocks(self._factors)


def _is_taken(x: Array) -> bool:
    """Tell whether a kernel takes such embeddings: float32 or less, where kernels run, no gradients wanted."""
    if not suit_kernels(x) or precision(x) < 1e-12:
        return False
    import torch

    return not (x.requires_grad and torch.is_grad_enabled())
