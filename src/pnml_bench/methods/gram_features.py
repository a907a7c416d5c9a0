"""Gram features (Sastry and Oore, 2020): how strongly each channel of an activation correlates with all others.

For an activation with channels × pixels matrix ``F``, the features of order ``k`` are the signed k-th roots of the row
sums of the Gram matrix ``(F^k)(F^k)ᵀ`` (powers elementwise). The row sums do not need the Gram matrix::

    Σ_j Σ_p F_ip^k F_jp^k = Σ_p F_ip^k s_p    with    s_p = Σ_j F_jp^k

so an order costs channels × pixels operations instead of channels² × pixels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Sequence

ORDERS = 10
_MARGIN = 1e-6
_CPU_CHUNK, _CHUNK = 1 << 16, 1 << 24  # elements per chunk: fits a CPU's cache; bounds the memory of a GPU


def gram_features(activation: Tensor) -> Tensor:
    """Return the Gram features of orders 1 to 10.

    Order 10 needs twentieth powers: in float32 these overflow for activations above 50 and underflow below 0.005.
    Powers and sums are therefore computed in float64, which is safe for magnitudes from 1e-15 to 1e15.

    Args:
        activation: shape (n, channels, height, width) or (n, channels, pixels).

    Returns:
        Shape (n, 10, channels), float32.

    >>> gram_features(torch.tensor([[[1.0, 2.0], [0.0, -3.0]]]))[0, :2]  # two channels, two pixels
    tensor([[-1.0000,  3.0000],
            [ 7.2801, 10.8167]])
    """
    if activation.ndim < 3:
        raise ValueError(f"expected an activation of shape (n, channels, pixels...), got {tuple(activation.shape)}")
    chunk = _CPU_CHUNK if activation.device.type == "cpu" else _CHUNK
    samples = max(1, chunk // max(1, activation.shape[1:].numel()))
    return torch.cat([gram_features_of_batch(part) for part in torch.split(activation, samples)])


def gram_features_of_batch(activation: Tensor) -> Tensor:
    """Compute :func:`gram_features` without chunks, for ``torch.compile``, which fuses the orders."""
    x = activation.flatten(2).double()
    power, sums = x, []
    for order in range(1, ORDERS + 1):
        if order > 1:
            power = power * x
        sums.append((power * power.sum(1, keepdim=True)).sum(2))
    row_sums = torch.stack(sums, dim=1)
    exponents = 1 / torch.arange(1, ORDERS + 1, dtype=x.dtype, device=x.device)
    return (row_sums.sign() * row_sums.abs() ** exponents[:, None]).float()


class GramRanges:
    """The minimum and maximum of every feature for every predicted class.

    The features of all taps are concatenated to F features. A class that was never predicted has no range: its minimum
    is infinity and its maximum is minus infinity.

    Args:
        n_classes: number of classes.
        tap_sizes: the number of features of each tap, F in total.
        device: the device of the features.

    Attributes:
        minimum, maximum: shape (classes, F).

    >>> ranges = GramRanges(n_classes=3, tap_sizes=[2, 1])
    >>> features = torch.tensor([[1.0, 5.0, 2.0], [2.0, 4.0, 2.0]])
    >>> ranges.update(features, predicted=torch.tensor([0, 0])).maximum[0]
    tensor([2., 5., 2.])
    >>> ranges.deviations(torch.tensor([[1.5, 10.0, 1.0]]), predicted=torch.tensor([0]))  # (10 - 5) / 5 and (2 - 1) / 2
    tensor([[1.0000, 0.5000]])
    """

    def __init__(self, n_classes: int, tap_sizes: Sequence[int], device: torch.device | str = "cpu") -> None:
        self.tap_sizes = list(tap_sizes)
        shape = (n_classes, sum(self.tap_sizes))
        self.minimum = torch.full(shape, torch.inf, device=device)
        self.maximum = torch.full(shape, -torch.inf, device=device)

    @property
    def n_classes(self) -> int:
        """The number of classes, predicted or not."""
        return len(self.minimum)

    def update(self, values: Tensor, predicted: Tensor) -> GramRanges:
        """Extend the ranges by features (n, F) of samples with predicted classes (n,), and return self."""
        self._check(values)
        index = predicted[:, None].expand_as(values)
        self.minimum = self.minimum.scatter_reduce(0, index, values, "amin")
        self.maximum = self.maximum.scatter_reduce(0, index, values, "amax")
        return self

    def check(self) -> GramRanges:
        """Return self; raise a ``ValueError`` if a feature is not finite."""
        bad = self.minimum.isnan() | (self.minimum == -torch.inf) | (self.maximum == torch.inf)
        if bool(bad.any()):
            first = int(bad.any(0).nonzero()[0])
            tap = int((torch.tensor(self.tap_sizes).cumsum(0) <= first).sum())
            raise ValueError(
                f"features of tap {tap} are not finite: the activations there are NaN, infinite or too large"
            )
        return self

    def deviations(self, values: Tensor, predicted: Tensor) -> Tensor:
        """Return the relative distances of samples from the range of their class, summed over each tap: (n, taps).

        A feature v outside of [min, max] adds (min − v) / |min + 1e-6| or (v − max) / |max + 1e-6|. For a class without
        a range, the range over all classes is used.

        Args:
            values: features, shape (n, F).
            predicted: the samples' predicted classes, shape (n,).
        """
        self._check(values)
        low, high = self.minimum[predicted], self.maximum[predicted]
        has_range = low <= high
        low = torch.where(has_range, low, self.minimum.amin(0))
        high = torch.where(has_range, high, self.maximum.amax(0))
        outside = (low - values).relu() / _magnitude(low) + (values - high).relu() / _magnitude(high)
        return torch.stack([tap.sum(1) for tap in torch.split(outside, self.tap_sizes, dim=1)], dim=1)

    def _check(self, values: Tensor) -> None:
        if values.ndim != 2 or values.shape[1] != self.minimum.shape[1]:
            raise ValueError(
                f"expected features of shape (n, {self.minimum.shape[1]}), got {tuple(values.shape)}: "
                "use the network that the ranges were fitted on"
            )


def _magnitude(bound: Tensor) -> Tensor:
    """Return |bound + 1e-6|, but never 0, so that a feature within the range adds 0 and not 0/0."""
    return (bound + _MARGIN).abs().clamp_min(torch.finfo(bound.dtype).tiny)
