"""Compare the networks with independent implementations from their papers, using the published parameter names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from pnml_bench import zoo

if TYPE_CHECKING:
    from collections.abc import Callable


class Reference:
    """Evaluates layers from a state dict, recording the names used and the tapped activations."""

    def __init__(self, state: dict[str, Tensor]) -> None:
        self.state = state
        self.used: set[str] = set()
        self.taps: list[Tensor] = []

    def get(self, name: str) -> Tensor:
        self.used.add(name)
        return self.state[name]

    def conv(self, name: str, x: Tensor, stride: int = 1) -> Tensor:
        weight = self.get(f"{name}.weight")
        return functional.conv2d(x, weight, stride=stride, padding=weight.shape[-1] // 2)

    def norm(self, name: str, x: Tensor) -> Tensor:
        mean, var, weight, bias = (
            self.get(f"{name}.{part}").view(-1, 1, 1) for part in ("running_mean", "running_var", "weight", "bias")
        )
        return (x - mean) / torch.sqrt(var + 1e-5) * weight + bias

    def active(self, name: str, x: Tensor) -> Tensor:
        return self.norm(name, x).clamp(min=0)

    def tap(self, x: Tensor) -> Tensor:
        self.taps.append(x)
        return x

    def head(self, name: str, x: Tensor) -> tuple[Tensor, Tensor]:
        features = x.flatten(2).sum(2) / (x.shape[2] * x.shape[3])
        return features, features @ self.get(f"{name}.weight").T + self.get(f"{name}.bias")


def densenet(net: Reference, x: Tensor) -> tuple[Tensor, Tensor]:
    x = net.conv("conv1", x)
    for block in (1, 2, 3):
        for layer in range(16):
            at = f"block{block}.layer.{layer}"
            new = net.tap(net.conv(f"{at}.conv1", net.active(f"{at}.bn1", x)))
            new = net.tap(net.conv(f"{at}.conv2", net.active(f"{at}.bn2", new)))
            x = torch.cat([x, new], 1)
        net.tap(x)
        if block < 3:
            x = net.tap(net.conv(f"trans{block}.conv1", net.active(f"trans{block}.bn1", x)))
            x = (x[..., ::2, ::2] + x[..., 1::2, ::2] + x[..., ::2, 1::2] + x[..., 1::2, 1::2]) / 4
    return net.head("fc", net.active("bn1", x))


def resnet(net: Reference, x: Tensor, blocks: list[int], convolutions: int, shortcut: str) -> Tensor:
    strided = 2 if convolutions == 3 else 1
    for stage, depth in enumerate(blocks, start=1):
        for block in range(depth):
            at, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            branch = x
            for i in range(1, convolutions + 1):
                branch = net.tap(net.conv(f"{at}.conv{i}", branch, stride if i == strided else 1))
                branch = net.tap((net.norm if i == convolutions else net.active)(f"{at}.bn{i}", branch))
            if f"{at}.{shortcut}.0.weight" in net.state:
                x = net.norm(f"{at}.{shortcut}.1", net.conv(f"{at}.{shortcut}.0", x, stride))
            x = net.tap((branch + net.tap(x)).clamp(min=0))
    return x


def resnet_cifar(net: Reference, x: Tensor, blocks: list[int]) -> tuple[Tensor, Tensor]:
    x = net.active("bn1", net.conv("conv1", x))
    return net.head("linear", resnet(net, x, blocks, 2, "shortcut"))


def resnet_imagenet(net: Reference, x: Tensor, blocks: list[int], convolutions: int) -> tuple[Tensor, Tensor]:
    x = net.active("bn1", net.conv("conv1", x, 2))
    x = functional.max_pool2d(x, 3, 2, 1)
    return net.head("fc", resnet(net, x, blocks, convolutions, "downsample"))


def wide_resnet(net: Reference, x: Tensor) -> tuple[Tensor, Tensor]:
    x = net.conv("conv1", x)
    for stage in (1, 2, 3):
        for block in range(6):
            at, stride = f"block{stage}.layer.{block}", 2 if stage > 1 and block == 0 else 1
            before = net.active(f"{at}.bn1", x)
            branch = net.tap(net.conv(f"{at}.conv1", before, stride))
            branch = net.tap(net.conv(f"{at}.conv2", net.tap(net.active(f"{at}.bn2", branch))))
            x = net.conv(f"{at}.convShortcut", before, stride) if block == 0 else x
            x = net.tap(net.tap(x) + branch)
    return net.head("fc", net.active("bn1", x))


# name: (reference, classes, parameters, features, taps, image size)
Known = tuple["Callable[[Reference, Tensor], tuple[Tensor, Tensor]]", int, int, int, int, int]
KNOWN: dict[str, Known] = {
    "densenet-bc-100": (densenet, 10, 769_162, 342, 3 * 16 * 2 + 2 + 3, 32),
    "resnet-34": (lambda net, x: resnet_cifar(net, x, [3, 4, 6, 3]), 10, 21_282_122, 512, 16 * 6, 32),
    "resnet-20": (lambda net, x: resnet_cifar(net, x, [3, 3, 3]), 10, 272_474, 64, 9 * 6, 32),
    "wideresnet-40-2": (wide_resnet, 10, 2_243_546, 128, 18 * 5, 32),
    "resnet-18-small": (lambda net, x: resnet_cifar(net, x, [2, 2, 2, 2]), 10, 11_173_962, 512, 8 * 6, 32),
    "resnet-18": (lambda net, x: resnet_imagenet(net, x, [2, 2, 2, 2], 2), 1000, 11_689_512, 512, 8 * 6, 64),
    "resnet-101": (lambda net, x: resnet_imagenet(net, x, [3, 4, 23, 3], 3), 1000, 44_549_160, 2048, 33 * 8, 64),
}


def with_statistics(network: zoo.Network) -> zoo.Network:
    """Set random batch norm parameters and return the network in float64 and evaluation mode."""
    generator = torch.Generator().manual_seed(1)
    for module in network.modules():
        if isinstance(module, nn.BatchNorm2d):
            assert module.running_mean is not None
            assert module.running_var is not None
            nn.init.normal_(module.running_mean, std=0.1, generator=generator)
            nn.init.uniform_(module.running_var, 0.5, 1.5, generator=generator)
            nn.init.normal_(module.bias, std=0.1, generator=generator)
            nn.init.uniform_(module.weight, 0.3, 0.9, generator=generator)
    return network.double().eval()


def test_reference_exists_for_every_architecture() -> None:
    assert {*KNOWN, "vit-small"} == set(zoo.ARCHITECTURES)  # the transformer has a test of its own


@pytest.mark.parametrize("name", KNOWN)
def test_network_matches_reference(name: str) -> None:
    reference_forward, classes, parameters, width, taps, size = KNOWN[name]
    torch.manual_seed(0)
    network = zoo.create(name, classes)
    assert network.architecture == name
    assert network.training
    assert sum(p.numel() for p in network.parameters()) == parameters
    with_statistics(network)
    x = torch.randn(2, 3, size, size, dtype=torch.float64)
    tapped: list[Tensor] = []
    with torch.no_grad():
        logits, features = network(x), network.features(x)
        with_taps = network.embed(x, tapped.append)

    reference = Reference({k: v for k, v in network.state_dict().items() if not k.endswith("num_batches_tracked")})
    with torch.no_grad():
        expected_features, expected_logits = reference_forward(reference, x)
    assert reference.used == set(reference.state)
    assert features.shape == (2, width)
    assert logits.shape == (2, classes)
    torch.testing.assert_close(features, expected_features)
    torch.testing.assert_close(logits, expected_logits)

    torch.testing.assert_close(network.head(features), logits)
    assert network.head.in_features == width
    assert torch.equal(with_taps, features)
    # The activations were kept without copying, so one that the network overwrote would differ here.
    assert len(tapped) == taps
    for activation, expected in zip(tapped, reference.taps, strict=True):
        torch.testing.assert_close(activation, expected)


def test_normalise_matches_numpy() -> None:
    mean, std = (0.4, 0.5, 0.6), (0.1, 0.2, 0.3)
    images = np.random.default_rng(0).integers(0, 256, (2, 3, 4, 5), dtype=np.uint8)
    expected = (images / 255 - np.reshape(mean, (3, 1, 1))) / np.reshape(std, (3, 1, 1))
    normalise = zoo.Normalise(mean, std)
    x = normalise(torch.from_numpy(images))
    assert x.dtype == torch.float32
    np.testing.assert_allclose(x.numpy(), expected, atol=1e-5)
    assert normalise.double()(torch.from_numpy(images)).dtype == torch.float64


def test_create_raises_for_invalid_arguments() -> None:
    with pytest.raises(ValueError, match=r"'resnet-50': expected one of .*resnet-34"):
        zoo.create("resnet-50", 10)
    with pytest.raises(ValueError, match="at least 1, got 0"):
        zoo.create("resnet-20", 0)
