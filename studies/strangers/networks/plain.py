"""Networks that are one row of layers."""

from __future__ import annotations

from torch import nn

from studies.strangers.networks.pieces import averaged, convolution, unit


def cleffa() -> nn.Module:
    """Return Cleffa-00's VGG of six convolutions, with an average over pixels."""
    layers: list[nn.Module] = []
    for inputs, width in ((3, 32), (32, 64), (64, 128)):
        layers += [*unit(inputs, width, 3), *unit(width, width, 3), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, *averaged(128))


def kgrabias() -> nn.Module:
    """Return kgrabias' VGG of seven convolutions, with two dense layers and dropout."""
    layers: list[nn.Module] = []
    inputs = 3
    for widths, dropout in (((32, 32), 0.2), ((64, 64), 0.3), ((128, 256, 128), 0.4)):
        for width in widths:
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
            inputs = width
        layers += [nn.MaxPool2d(2), nn.Dropout(dropout)]
    dense = nn.Linear(2048, 128), nn.ReLU(), nn.Dropout(0.33), nn.Linear(128, 10)
    return nn.Sequential(*layers, nn.Flatten(), *dense)


def kuan() -> nn.Module:
    """Return kuanhenglin's six convolutions, with strides in place of pooling, and batch norms after the ReLUs."""
    layers: list[nn.Module] = []
    inputs = 3
    for width, stride in ((32, 1), (32, 2), (64, 1), (64, 2), (64, 1), (128, 2)):
        layers += [nn.Conv2d(inputs, width, 3, stride, 1), nn.ReLU(), nn.BatchNorm2d(width)]
        inputs = width
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 10))


def agrima(width: int, hidden: int) -> nn.Module:
    """Return AgrimaKhanna's four convolutions without batch norm, and two dense layers."""
    layers: list[nn.Module] = []
    inputs = 3
    for outputs in (width, 2 * width, 4 * width, 8 * width):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
        inputs = outputs
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * inputs, hidden), nn.ReLU(), nn.Linear(hidden, 10))


def dasomeom() -> nn.Module:
    """Return dasomeom's LeNet: two convolutions without padding, three dense layers."""
    layers = [nn.Conv2d(3, 20, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(20, 50, 5), nn.ReLU(), nn.MaxPool2d(2)]
    dense = nn.Linear(1250, 120), nn.ReLU(), nn.Linear(120, 120), nn.ReLU(), nn.Linear(120, 10)
    return nn.Sequential(*layers, nn.Flatten(), *dense)


def ian() -> nn.Module:
    """Return ianwolf99's depthwise separable convolutions with GELU, without shortcuts; some widen first."""

    def separable(inputs: int, outputs: int, stride: int = 1, widen: int = 1) -> list[nn.Module]:
        inside = widen * inputs
        first = unit(inputs, inside, act=nn.GELU) if widen > 1 else ()
        depthwise = convolution(inside, inside, 3, stride, groups=inside), nn.BatchNorm2d(inside), nn.GELU()
        return [*first, *depthwise, *unit(inside, outputs, act=nn.GELU)]

    layers = [*separable(32, 64), *separable(64, 128, 2, 4), *separable(128, 128, 1, 4), *separable(128, 256, 2, 4)]
    return nn.Sequential(unit(3, 32, 3, act=nn.GELU), *layers, *separable(256, 512, 2), *averaged(512))
