"""Everything that a regret is computed from, as one immutable object."""

from __future__ import annotations

from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import DeviceConstants, like

if TYPE_CHECKING:
    from pnml.backend.arrays import Array
    from pnml.core.geometry import Geometry
    from pnml.core.layout import Layout
    from pnml.core.subspace import Subspace

Matrix = np.ndarray[Any, Any]

_STEP = 256  # columns of a triangular factor that are multiplied at a time, to skip zeros


class Factor(NamedTuple):
    """A block of columns of an upper triangular factor, without the rows of zeros below."""

    stop: int
    columns: Array


class Constants(NamedTuple):
    """The arrays of a scoring model in one library, on one device, in one dtype.

    Attributes:
        weight: transposed, of the scaled logits less their mean over the classes, shape (M, C).
        bias: of these, shape (C,).
        head_bias: the bias of the model's own logits, less its mean, shape (C,).
        whitening: of the embedding, shape (m, rank).
        joint: of "auto", the whitening and the scaled head side by side, for centred embeddings that have no more
            columns than a leverage; and the logits of their mean.
        others: the null space of the embedding; or, of "auto", its mean, background, centres and shares of a row.
        means: of the other blocks.
        factors: their whitenings.
        profile: the arrays of the profile.
    """

    weight: Array
    bias: Array
    head_bias: Array
    whitening: Array
    joint: tuple[Array, ...] = ()
    others: tuple[Array, ...] = ()
    means: tuple[Array, ...] = ()
    factors: tuple[tuple[Factor, ...], ...] = ()
    profile: tuple[Array, ...] = ()


@dataclass(frozen=True, eq=False)
class ScoringModel:
    """A last layer, the geometry of its training embeddings, and how embeddings are scaled before the theorem.

    Attributes:
        weight: the last layer's weight, shape (C, M), float64.
        bias: its bias, shape (C,), float64.
        layout: how a row is cut into blocks.
        subspace: the span of the training embeddings, for the leverage of the paper; None for "auto".
        geometry: what the leverage of "auto" is computed from; None for that of the paper.
        length: the norm that embeddings get for the model's probabilities p.
        bias_scale: the factor of the bias for these p.
        label_noise: the share of labels assumed to be random; p becomes (1 − noise) p + noise / C.
    """

    weight: Matrix
    bias: Matrix
    layout: Layout
    subspace: Subspace | None = None
    geometry: Geometry | None = None
    length: float = 1.0
    bias_scale: float = 1.0
    label_noise: float = 0.0

    @property
    def n_classes(self) -> int:
        """The number C of classes."""
        return len(self.weight)

    @property
    def n_features(self) -> int:
        """The width M of an embedding."""
        return int(self.weight.shape[1])

    @property
    def unit_norm(self) -> bool:
        """Whether embeddings are scaled to norm 1, then multiplied by ``length``, or left as they are."""
        return self.layout.unit_norm

    @property
    def width(self) -> int:
        """How many numbers a row takes while it is scored: its features, or its logits if those are more."""
        return max(sum(self.layout.widths), self.n_classes)

    @property
    def largest_regret(self) -> float:
        """Log C: the regret of an embedding without a direction, and no regret is larger."""
        return float(np.log(self.n_classes))

    @cached_property
    def _arrays(self) -> Constants:
        """The constants in NumPy.

        Softmax ignores what all classes have in common, but its rounding errors would not: the means over the classes
        are left out of the head.
        """
        weight = self.weight * self.length
        head_bias = self.bias - self.bias.mean()
        weight = np.ascontiguousarray((weight - weight.mean(axis=0)).T)
        bias = head_bias * self.bias_scale
        if self.geometry is None:
            assert self.subspace is not None  # noqa: S101 - one of both is there
            return Constants(weight, bias, head_bias, self.subspace.whitening, others=(self.subspace.null_space,))
        embedding = self.geometry.embedding
        joint: tuple[Matrix, ...] = ()
        if len(weight) == len(embedding.mean):
            joint = np.hstack([embedding.whitening, weight]), embedding.mean @ weight + bias
        return Constants(
            weight,
            bias,
            head_bias,
            embedding.whitening,
            joint,
            (embedding.mean, embedding.background, embedding.centres, embedding.row_shares),
            tuple(block.mean for block in self.geometry.blocks),
            tuple(_factors(block.whitening) for block in self.geometry.blocks),
            self.geometry.profile.arrays,
        )

    @cached_property
    def _copies(self) -> dict[Any, Constants]:
        return {}

    def constants(self, x: Array, dtype: Any) -> Constants:
        """Return the constants in the library and on the device of ``x``, in a dtype of that library."""
        key = (type(x), None if type(x) is np.ndarray else compat.device(x), dtype)
        found = self._copies.get(key)
        if found is None:
            found = _converted(self._arrays, x, dtype)
            self._copies[key] = found
        return found

    @cached_property
    def head(self) -> DeviceConstants:
        """Transposed weight (M, C) and bias (C,) of the model's own logits, for arrays of any library."""
        return DeviceConstants(self.weight.T, self.bias)

    def rounded(self) -> ScoringModel:
        """Return the model with its geometry rounded to float32, as it is stored where it scores in float32."""
        if self.geometry is None:
            return self
        return replace(self, geometry=_rounded(self.geometry))

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_copies"}


def _factors(whitening: Matrix) -> tuple[Factor, ...]:
    """Cut an upper triangular factor into blocks of columns."""
    width = len(whitening)
    stops = range(min(_STEP, width), width + _STEP, _STEP) if width > _STEP else [width]
    found = []
    start = 0
    for stop in (min(stop, width) for stop in stops):
        if stop > start:
            found.append(Factor(stop, np.ascontiguousarray(whitening[:stop, start:stop])))
        start = stop
    return tuple(found)


def _rounded(value: Any) -> Any:
    """Return arrays, and dataclasses and tuples of arrays, rounded to float32."""
    if isinstance(value, np.ndarray):
        return value.astype(np.float32).astype(np.float64)
    if isinstance(value, tuple):
        return tuple(_rounded(part) for part in value)
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{one.name: _rounded(getattr(value, one.name)) for one in fields(value)})
    return value


def _converted(value: Any, x: Array, dtype: Any) -> Any:
    """Return arrays, and tuples of arrays, converted."""
    if isinstance(value, np.ndarray):
        if type(x) is np.ndarray:
            return value.astype(dtype)
        return like(x, value, dtype)
    if isinstance(value, tuple):
        parts = [_converted(part, x, dtype) for part in value]
        return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)
    return value
