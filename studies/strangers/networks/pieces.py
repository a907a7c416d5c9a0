"""What several networks are made of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

if TYPE_CHECKING:
    from collections.abc import Callable


class Convolution(Protocol):
    """Return a convolution without bias that keeps the resolution, or divides it by ``stride``."""

    def __call__(self, inputs: int, outputs: int, kernel: int = ..., stride: int = ...) -> nn.Module: ...


class SameConv(nn.Conv2d):
    """A convolution that pads even sizes as TensorFlow does: with a stride, more at the right and the bottom."""

    def forward(self, x: Tensor) -> Tensor:
        total = max(self.kernel_size[0] - self.stride[0], 0)
        before, after = total // 2, total - total // 2
        return super().forward(pad(x, (before, after, before, after)))


def convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, *, groups: int = 1) -> nn.Conv2d:
    """Return a convolution without bias that keeps the resolution, or divides it by ``stride``."""
    return nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, groups=groups, bias=False)


def same_convolution(inputs: int, outputs: int, kernel: int = 3, stride: int = 1, *, groups: int = 1) -> SameConv:
    """Return a convolution without bias, padded as in TensorFlow."""
    return SameConv(inputs, outputs, kernel, stride, groups=groups, bias=False)


def unit(
    inputs: int,
    outputs: int,
    kernel: int = 1,
    stride: int = 1,
    *,
    groups: int = 1,
    act: Callable[[], nn.Module] | None = nn.ReLU,
    conv: Callable[..., nn.Module] = convolution,
    eps: float = 1e-5,
) -> nn.Sequential:
    """Return a convolution, a batch norm and an activation."""
    layers = [conv(inputs, outputs, kernel, stride, groups=groups), nn.BatchNorm2d(outputs, eps=eps)]
    return nn.Sequential(*layers, *([] if act is None else [act()]))


def averaged(width: int, classes: int = 10) -> tuple[nn.Module, ...]:
    """Return the mean over pixels and a linear head."""
    return nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)


class Join(nn.Module):
    """The channels of ``x`` and of ``inner(x)``."""

    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*inner)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.inner(x)], dim=1)
