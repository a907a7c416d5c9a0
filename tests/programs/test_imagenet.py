"""Test the networks of ``studies/families/imagenet.py`` and how their pictures are prepared, on made-up files."""

from __future__ import annotations

import json
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from PIL import Image

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Any:
    return import_module(f"studies.families.{request.param}")


def write_model(folder: Path, weights: dict[str, Any], *, shards: int = 3) -> None:
    """Write arrays as TensorFlow.js stores them: one after the other, cut into shards without regard to their ends."""
    stored = b"".join(np.asarray(one, dtype="<f4").tobytes() for one in weights.values())
    step = -(-len(stored) // shards)
    paths = [f"group1-shard{number + 1}of{shards}.bin" for number in range(shards)]
    for number, path in enumerate(paths):
        (folder / path).write_bytes(stored[number * step : (number + 1) * step])
    listed = [{"name": name, "shape": np.shape(one), "dtype": "float32"} for name, one in weights.items()]
    manifest = {"weightsManifest": [{"paths": paths, "weights": listed}]}
    (folder / "model.json").write_text(json.dumps(manifest), encoding="utf-8")


def convolution_weights(rng: Any, name: str, norm: str, shape: tuple[int, ...]) -> dict[str, Any]:
    of_norm = {part: rng.normal(size=shape[-1]) for part in ("gamma", "beta", "moving_mean")}
    of_norm["moving_variance"] = rng.uniform(0.001, 1, shape[-1])
    return {
        f"{name}/kernel": rng.normal(size=shape) / np.sqrt(np.prod(shape[:3])),
        f"{name}/bias": rng.normal(size=shape[-1]),
        **{f"{norm}/{part}": value for part, value in of_norm.items()},
    }


def block_weights(rng: Any, name: str, inputs: int, width: int, *, first: bool) -> dict[str, Any]:
    shapes = {"2a": (1, 1, inputs, width), "2b": (3, 3, width, width), "2c": (1, 1, width, 4 * width)}
    if first:
        shapes["1"] = (1, 1, inputs, 4 * width)
    found: dict[str, Any] = {}
    for branch, shape in shapes.items():
        found |= convolution_weights(rng, f"res{name}_branch{branch}", f"bn{name}_branch{branch}", shape)
    return found


def convolved(x: Any, weights: dict[str, Any], name: str, norm: str, stride: int) -> Any:
    """Return a convolution of x (height, width, channels) with zeros around it, normalized, pixel by pixel."""
    kernel = weights[f"{name}/kernel"]
    side = kernel.shape[0]
    padded = np.pad(x, ((side // 2, side // 2), (side // 2, side // 2), (0, 0)))
    rows, columns = ((length + 2 * (side // 2) - side) // stride + 1 for length in x.shape[:2])
    found = np.empty((rows, columns, kernel.shape[3]))
    for row in range(rows):
        for column in range(columns):
            patch = padded[row * stride : row * stride + side, column * stride : column * stride + side]
            found[row, column] = np.tensordot(patch, kernel, 3) + weights[f"{name}/bias"]
    gamma, beta, mean, variance = (
        weights[f"{norm}/{part}"] for part in ("gamma", "beta", "moving_mean", "moving_variance")
    )
    return gamma * (found - mean) / np.sqrt(variance + 0.001) + beta


@pytest.mark.parametrize("program", ["imagenet_resnet"], indirect=True)
def test_weights_are_read_across_the_ends_of_shards(program: Any, tmp_path: Path) -> None:
    weights = {"a/kernel": np.arange(24).reshape(1, 2, 3, 4), "a/bias": [0.5, -0.25], "b/gamma": np.pi}
    write_model(tmp_path, weights, shards=4)
    found = program.read_weights(tmp_path)
    assert list(found) == list(weights)
    for name, value in weights.items():
        assert torch.equal(found[name], torch.tensor(np.asarray(value), dtype=torch.float32))


@pytest.mark.parametrize("program", ["imagenet_resnet"], indirect=True)
@pytest.mark.parametrize(("inputs", "stride", "first"), [(3, 2, True), (3, 1, True), (8, 1, False)])
def test_a_block_is_its_three_convolutions_and_its_input(
    program: Any, inputs: int, stride: int, *, first: bool
) -> None:
    rng = np.random.default_rng(0)
    weights, x = block_weights(rng, "9z", inputs, 2, first=first), rng.normal(size=(7, 6, inputs))
    block = program.Block({name: torch.from_numpy(one).float() for name, one in weights.items()}, "9z", stride).eval()
    with torch.inference_mode():
        found = block(torch.from_numpy(x).float().permute(2, 0, 1)[None])[0].permute(1, 2, 0)

    def branch(which: str, x: Any, stride: int = 1) -> Any:
        return convolved(x, weights, f"res9z_branch{which}", f"bn9z_branch{which}", stride)

    inner = np.maximum(branch("2b", np.maximum(branch("2a", x, stride), 0)), 0)
    expected = np.maximum(branch("2c", inner) + (branch("1", x, stride) if first else x), 0)
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("program", ["imagenet_resnet"], indirect=True)
def test_the_network_has_50_layers_and_halves_pictures_five_times(program: Any, tmp_path: Path) -> None:
    rng, width = np.random.default_rng(0), 2
    weights = convolution_weights(rng, "conv1", "bn_conv1", (7, 7, 3, width))
    inputs = width
    for stage, letters in program.BLOCKS.items():
        for letter in letters:
            own = width * 2 ** (stage - 2)
            weights |= block_weights(rng, f"{stage}{letter}", inputs, own, first=letter == "a")
            inputs = 4 * own
    weights |= {"fc1000/kernel": rng.normal(size=(inputs, 10)), "fc1000/bias": rng.normal(size=10)}
    write_model(tmp_path, weights)
    body, head = program.read_resnet(tmp_path)
    convolutions = [module for module in body.modules() if isinstance(module, torch.nn.Conv2d)]
    assert len(convolutions) + 1 - 4 == 50  # the head counts, the four shortcuts do not
    x = torch.from_numpy(rng.normal(size=(2, 3, 64, 64))).float()
    with torch.inference_mode():
        assert body.eval()[:-2](x).shape == (2, inputs, 2, 2)
        embeddings = body(x)
        logits = head(embeddings)
    expected = embeddings.numpy() @ weights["fc1000/kernel"] + weights["fc1000/bias"]
    np.testing.assert_allclose(logits.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("program", ["imagenet"], indirect=True)
@pytest.mark.parametrize(("network", "size"), [("lite0", 224), ("lite1", 240), ("lite2", 260), ("resnet50", 224)])
def test_the_middle_of_a_picture_is_taken_in_the_size_of_the_network(program: Any, network: str, size: int) -> None:
    pixels = np.zeros((size + 32, 2 * size, 3), dtype=np.uint8)
    pixels[16 : 16 + size, size // 2 : size // 2 + size] = 255, 128, 0
    found = program.prepare(Image.fromarray(pixels), program.NETWORKS[network])
    assert found.shape == (3, size, size)
    assert found.dtype == torch.float32
    red, green, blue = np.array([255, 128, 0])
    expected = {"resnet50": (blue - 103.939, green - 116.779, red - 123.68)}.get(
        network, tuple((channel / 255 - 0.498) / 0.502 for channel in (red, green, blue))
    )
    for channel, value in zip(found, expected, strict=True):
        np.testing.assert_allclose(channel.numpy(), value, rtol=1e-5)
