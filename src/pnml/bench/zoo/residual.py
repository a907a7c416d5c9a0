"""The residual unit that ResNets with their activation after the addition share."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.nn.functional import relu

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml.bench.zoo.network import Tap


def residual(x: Tensor, steps: Sequence[tuple[nn.Conv2d, nn.BatchNorm2d]], shortcut: nn.Module, tap: Tap) -> Tensor:
    """Give relu(steps(x) + shortcut(x)), where a step is a convolution and a batch norm, with relu between steps.

    Taps: every convolution, every step's output (its relu's where it has one), the shortcut, the result.
    Only tensors that were not tapped are overwritten.
    """
    branch = x
    for number, (convolution, norm) in enumerate(steps, start=1):
        branch = convolution(branch)
        tap(branch)
        branch = norm(branch)
        if number < len(steps):
            branch = relu(branch, inplace=True)
        tap(branch)
    identity = shortcut(x)
    tap(identity)
    out = relu(branch + identity, inplace=True)
    tap(out)
    return out


def projection(inputs: int, outputs: int, stride: int) -> nn.Sequential:
    """Make the shortcut: nothing where the shape stays, else a 1×1 convolution and a batch norm."""
    if stride == 1 and inputs == outputs:
        return nn.Sequential()
    return nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))
