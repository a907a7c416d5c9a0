from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from pnml_bench import zoo
from pnml_bench.zoo import checkpoints
from pnml_bench.zoo.network import CIFAR

if TYPE_CHECKING:
    from pathlib import Path

DENSENETS = [name for name in zoo.CHECKPOINTS if name.startswith("densenet")]
HAS_WEIGHTS = pytest.mark.skipif("PNML_WEIGHTS" not in os.environ, reason="set PNML_WEIGHTS to a folder of checkpoints")


@pytest.fixture
def network() -> zoo.Network:
    torch.manual_seed(0)
    created = zoo.create("resnet-20", 7)
    with torch.no_grad():
        created(torch.randn(8, 3, 32, 32))  # updates the batch norm statistics
    return created.eval()


@pytest.fixture
def checkpoint(network: zoo.Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> zoo.Checkpoint:
    """Register a checkpoint whose file is in ``tmp_path / "source"``, which is not searched by default."""
    path = tmp_path / "source" / "mine.safetensors"
    path.parent.mkdir()
    zoo.save(network, path)
    registered = zoo.Checkpoint(
        name="mine",
        architecture="resnet-20",
        num_classes=7,
        trained_on="nothing",
        mean=(0.1, 0.2, 0.3),
        std=(0.4, 0.5, 0.6),
        filename=path.name,
        url=None,
        sha256=hashlib.sha256(path.read_bytes()).hexdigest(),
        note="",
    )
    monkeypatch.setitem(zoo.CHECKPOINTS, "mine", registered)
    monkeypatch.setenv("PNML_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PNML_WEIGHTS", raising=False)
    return registered


def same_weights(first: zoo.Network, second: zoo.Network) -> bool:
    a, b = first.state_dict(), second.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a.keys() | b.keys() if "num_batches" not in name)


def test_load_returns_saved_network(network: zoo.Network, tmp_path: Path) -> None:
    network.normalise = zoo.Normalise((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    zoo.save(network.to(memory_format=torch.channels_last), tmp_path / "it.safetensors")  # type: ignore[call-overload]
    loaded = zoo.load(tmp_path / "it.safetensors")
    assert loaded.architecture == "resnet-20"
    assert not loaded.training
    assert same_weights(loaded, network)
    assert torch.equal(loaded.normalise.mean, network.normalise.mean)
    assert torch.equal(loaded.normalise.std, network.normalise.std)
    assert list(tmp_path.iterdir()) == [tmp_path / "it.safetensors"]
    assert same_weights(zoo.load(str(tmp_path / "it.safetensors"), architecture="resnet-20", num_classes=7), network)


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_load_of_state_dict_needs_architecture(network: zoo.Network, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"state{suffix}"
    state = {k: v for k, v in network.state_dict().items() if not k.endswith("num_batches_tracked")}
    if suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    with pytest.raises(ValueError, match="pass architecture=, one of densenet-bc-100, resnet-34"):
        zoo.load(path)
    loaded = zoo.load(path, architecture="resnet-20")
    assert same_weights(loaded, network)
    torch.testing.assert_close(loaded.normalise.mean.flatten(), torch.tensor(CIFAR.mean))


def test_load_as_other_network_raises(network: zoo.Network, tmp_path: Path) -> None:
    path = tmp_path / "it.safetensors"
    zoo.save(network, path)
    with pytest.raises(
        ValueError, match=r"not a wideresnet-40-2 with 7 classes.*missing \(.*, \.\.\.\).*unknown.*shape"
    ):
        zoo.load(path, architecture="wideresnet-40-2")
    message = (
        r"not a resnet-20 with 8 classes; tensors: 2 of other shape "
        r"\(linear\.bias \(7,\) instead of \(8,\), linear\.weight \(7, 64\) instead of \(8, 64\)\)$"
    )
    with pytest.raises(ValueError, match=message):
        zoo.load(path, num_classes=8)
    with pytest.raises(ValueError, match="unknown architecture 'resnet-50'"):
        zoo.load(path, architecture="resnet-50")


@pytest.mark.parametrize(
    "content", [nn.Linear(1, 1), {"state_dict": {"w": torch.zeros(1)}}, [torch.zeros(1)], {"epoch": 3}]
)
def test_torch_file_that_is_not_a_state_dict_raises(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "it.pth")
    with pytest.raises(ValueError, match=r"it\.pth .*state dict"):
        zoo.load(tmp_path / "it.pth", architecture="resnet-20")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("it.safetensors", b"no tensors", "not a safetensors file"),
        ("it.pth", b"no tensors", "cannot be read as a state dict"),
        ("it.pth", b"", "cannot be read as a state dict"),
        ("it.npz", b"", r"expected \.safetensors, \.pt or \.pth"),
    ],
)
def test_file_of_other_format_raises(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        zoo.load(tmp_path / name, architecture="resnet-20")


def test_unknown_checkpoint_raises() -> None:
    with pytest.raises(FileNotFoundError, match=r"'resnet-7' is neither a file nor .*densenet-bc-100_cifar10"):
        zoo.load("resnet-7")


def test_missing_file_raises_with_both_folders(
    checkpoint: zoo.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        zoo.load("mine")
    message = str(caught.value)
    assert all(part in message for part in ("mine.safetensors", "PNML_WEIGHTS (not set)", f"{tmp_path}/cache/weights"))
    monkeypatch.setenv("PNML_WEIGHTS", str(tmp_path / "elsewhere"))
    with pytest.raises(FileNotFoundError, match=f"PNML_WEIGHTS .*{tmp_path}/elsewhere"):
        zoo.load("mine")


def test_locate_prefers_pnml_weights_to_cache(
    checkpoint: zoo.Checkpoint, network: zoo.Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, cached = tmp_path / "source" / checkpoint.filename, tmp_path / "cache" / "weights" / checkpoint.filename
    cached.parent.mkdir(parents=True)
    cached.write_bytes(source.read_bytes())
    assert checkpoints.locate(checkpoint) == cached
    monkeypatch.setenv("PNML_WEIGHTS", os.pathsep.join([str(tmp_path / "empty"), str(source.parent)]))
    assert checkpoints.locate(checkpoint) == source
    loaded = zoo.load("mine")
    assert same_weights(loaded, network)
    # The normalisation is that of the registry, not of the file.
    torch.testing.assert_close(loaded.normalise.std.flatten(), torch.tensor(checkpoint.std))

    source.write_bytes(source.read_bytes() + b"!")
    with pytest.raises(ValueError, match=f"expected sha256 {checkpoint.sha256}"):
        zoo.load("mine")


def test_registry_is_consistent() -> None:
    assert len(DENSENETS) == 6
    for name, checkpoint in zoo.CHECKPOINTS.items():
        assert name == checkpoint.name
        assert checkpoint.architecture in zoo.ARCHITECTURES
        assert checkpoint.num_classes == {"cifar100": 100, "imagenet": 1000}.get(checkpoint.trained_on, 10)
    resnet = zoo.CHECKPOINTS["resnet-101_imagenet"]
    assert (resnet.url, resnet.sha256) == ("https://download.pytorch.org/models/resnet101-63fe2227.pth", "63fe2227")


@HAS_WEIGHTS
@pytest.mark.parametrize("name", DENSENETS)
def test_published_densenets_load(name: str) -> None:
    network, checkpoint = zoo.load(name), zoo.CHECKPOINTS[name]
    assert network.head.out_features == checkpoint.num_classes
    stored: dict[str, Tensor] = load_file(checkpoints.locate(checkpoint))
    state = network.state_dict()
    assert all(torch.equal(state[key], tensor) for key, tensor in stored.items())


def test_float16_weights_are_rounded_once_and_stored_exactly(network: zoo.Network, tmp_path: Path) -> None:
    before = {name: tensor.clone() for name, tensor in network.state_dict().items()}
    zoo.round_to_float16(network)
    zoo.save(network, tmp_path / "half.safetensors", float16=True)
    zoo.save(network, tmp_path / "whole.safetensors")
    assert (tmp_path / "half.safetensors").stat().st_size < 0.6 * (tmp_path / "whole.safetensors").stat().st_size
    loaded = zoo.load(tmp_path / "half.safetensors").state_dict()
    for name, tensor in before.items():
        expected = tensor.half().float() if tensor.ndim > 1 else tensor
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name], expected)
