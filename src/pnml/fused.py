"""Regrets in one kernel on an NVIDIA GPU, by products of TF32, which keeps eleven binary digits of each factor.

Each entry of an embedding x and of the whitening W is off by up to u = 2⁻¹¹ of itself, beside what all embeddings have
in common. Where these roundings do not conspire, they move Wᵀx by about ``√2 u √(Σ_k x_k² ‖W_k‖²)``, where ‖W_k‖² is
the k-th diagonal entry of S⁺. A typical training row has x_k² = S_kk / N and h = rank / N, so the share of its √h that
is wrong is about ::

    √2 u √(Σ_k S_kk S⁺_kk / rank)

or less, as most of what moves Wᵀx does not move its length. Logits, and with them log p, are off likewise. The kernel
estimates both for every row. A row that may be further off than ``LARGEST_ERROR`` is not given, nor is one whose
squares leave float32. It is an estimate: a bound like those of :mod:`pnml.quick`, for roundings that all add up, would
be too wide for any row. And TF32 cannot tell whether a row leaves the span of the training rows, so those must span
everything.

Weight and whitening are rounded to the nearest number of TF32 beforehand. Of an embedding the tensor cores leave out
the digits that TF32 has not. All that does to the length of an embedding is made up for, and what is left is noise in
its direction.
"""

from __future__ import annotations

import math
from functools import cache, cached_property
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import array_api_compat as compat
import numpy as np

from pnml._arrays import Array, Placed, precision
from pnml._rows import by_chunk, squares
from pnml.quick import LARGEST_ERROR

if TYPE_CHECKING:
    from pnml.scaling import EmbeddingScale
    from pnml.subspace import Subspace

MOST_CLASSES = 256
"""How many logits of a row fit into the registers."""

_PADDING = 256  # no block of the kernel is wider
_ROUNDING = math.sqrt(2) * 2.0**-11  # of a product's two factors


class Fused:
    """A detector's scores in TF32; the arguments are those of :class:`~pnml.quick.Quick`.

    Attributes:
        typical_error: the estimated error of a typical training row's regret, relative to it.
    """

    def __init__(
        self, weight: np.ndarray[Any, Any], bias: np.ndarray[Any, Any], subspace: Subspace, scale: EmbeddingScale
    ) -> None:
        self.weight, self.bias, self.subspace, self.embedding_scale = weight, bias, subspace, scale
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

    @cached_property
    def constants(self) -> Placed:
        """What the kernel needs, in blocks: whitening column by column, weight and bias of each class, and reach."""
        classes = len(self.weight)
        more = max(16, 1 << (classes - 1).bit_length()) - classes
        return Placed(
            _nearest(_padded(self.subspace.whitening.T, -self.subspace.rank % _PADDING)),
            _nearest(_padded(self.weight, more)),
            np.pad(self.bias, (0, more), constant_values=-1e30),  # no logit
            _padded(self.reach, 0),
        )

    def suits(self, x: Array) -> bool:
        """Tell whether most regrets will be certain enough, by the training set, and ``x`` lies where TF32 is."""
        if self.subspace.rank < self.subspace.n_features or len(self.weight) > MOST_CLASSES:
            return False
        return self.typical_error <= LARGEST_ERROR and _is_taken(x)

    def score(self, x: Array, *, compiled: bool = False) -> tuple[Array, Array]:  # noqa: ARG002 - as of Quick
        """Give the regrets of embeddings (n, M) of PyTorch in float32, and which are within the limit.

        Args:
            x: embeddings.
            compiled: makes no difference, as the kernel always is.
        """
        from pnml._fused_kernel import regrets

        xp = compat.array_namespace(x)
        constants = self.constants.beside(x, xp.float32)
        options: dict[str, Any] = {"classes": len(self.weight), "unit_norm": self.embedding_scale != "natural"}
        found = xp.concat(by_chunk(lambda chunk: regrets(chunk, constants, **options), x, xp.float32))
        return found, xp.isfinite(found)


def _padded(rows: np.ndarray[Any, Any], more: int) -> np.ndarray[Any, Any]:
    """Append zeros in float32: to each row as many as blocks have too many, and more rows."""
    with np.errstate(over="ignore"):
        narrow = rows.astype(np.float32)
    return np.ascontiguousarray(np.pad(narrow, ((0, more), (0, -rows.shape[1] % _PADDING))))


def _nearest(rows: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Round float32 to the nearest number of TF32, whose last 13 bits are zero."""
    return ((rows.view(np.int32) + 4096) & -8192).view(np.float32)


def _is_taken(x: Array) -> bool:
    """Tell whether the kernel takes such embeddings: float32 or less, on a GPU that has TF32, no gradients wanted."""
    if not compat.is_torch_array(x) or x.device.type != "cuda" or precision(x) < 1e-12 or not _has_triton():
        return False
    import torch

    if torch.version.hip or (x.requires_grad and torch.is_grad_enabled()):
        return False
    return torch.cuda.get_device_capability(x.device) >= (8, 0)


@cache
def _has_triton() -> bool:
    return find_spec("triton") is not None
