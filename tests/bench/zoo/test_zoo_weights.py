from __future__ import annotations

import hashlib
import os
import socket
from dataclasses import replace
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
HAS_DATA = pytest.mark.skipif("PNML_DATA" not in os.environ, reason="set PNML_DATA to a folder of image sets")


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


def test_load_reads_state_dict_with_version_metadata(network: zoo.Network, tmp_path: Path) -> None:
    state = network.state_dict()
    for name in [k for k in state if k.endswith("num_batches_tracked")]:
        del state[name]
    torch.save(state, tmp_path / "state.pth")
    assert same_weights(zoo.load(tmp_path / "state.pth", architecture="resnet-20"), network)


def test_save_without_architecture_raises(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"network of zoo\.create or zoo\.load"):
        zoo.save(zoo.ARCHITECTURES["resnet-20"](10), tmp_path / "it.safetensors")
    assert list(tmp_path.iterdir()) == []


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


@pytest.mark.parametrize("name", ["bn1.running_var", "layer3.2.conv2.weight"])
def test_missing_tensor_raises(network: zoo.Network, tmp_path: Path, name: str) -> None:
    state = network.state_dict()
    del state[name]
    torch.save(state, tmp_path / "it.pth")
    with pytest.raises(ValueError, match=rf"1 missing \({name}\)$"):
        zoo.load(tmp_path / "it.pth", architecture="resnet-20")


def test_unknown_tensor_raises(network: zoo.Network, tmp_path: Path) -> None:
    torch.save(network.state_dict() | {"layer4.weight": torch.zeros(1)}, tmp_path / "it.pth")
    with pytest.raises(ValueError, match=r"1 unknown \(layer4\.weight\)$"):
        zoo.load(tmp_path / "it.pth", architecture="resnet-20")


@pytest.mark.parametrize(
    ("names", "found"), [(("fc.weight", "linear.weight"), 2), (("a", "blocks.0.fc.weight"), 0), (("fc.bias",), 0)]
)
def test_file_without_exactly_one_head_raises(tmp_path: Path, names: tuple[str, ...], found: int) -> None:
    save_file({name: torch.zeros(2, 2) for name in names}, tmp_path / "it.safetensors")
    with pytest.raises(ValueError, match=rf"expected one matrix named fc\.weight or linear\.weight, found {found}$"):
        zoo.load(tmp_path / "it.safetensors", architecture="resnet-20")


@pytest.mark.parametrize("architecture", zoo.ARCHITECTURES)
def test_every_architecture_is_loaded_as_it_was_saved(tmp_path: Path, architecture: str) -> None:
    saved = zoo.create(architecture, 7)
    zoo.save(saved, tmp_path / "it.safetensors")
    loaded = zoo.load(tmp_path / "it.safetensors")
    assert (loaded.architecture, loaded.head.out_features) == (architecture, 7)
    assert all(torch.equal(one, saved.state_dict()[name]) for name, one in loaded.state_dict().items())


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


def test_load_that_contradicts_registry_raises(
    checkpoint: zoo.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PNML_WEIGHTS", str(tmp_path / "source"))
    zoo.load("mine", architecture="resnet-20", num_classes=7)
    with pytest.raises(ValueError, match="mine is a resnet-20 with 7 classes, not architecture='resnet-34'"):
        zoo.load("mine", architecture="resnet-34")
    with pytest.raises(ValueError, match="num_classes=10"):
        zoo.load("mine", num_classes=10)


def test_locate_downloads_missing_file(
    checkpoint: zoo.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/mine.safetensors"
    published = replace(checkpoint, url=url)
    with pytest.raises(ConnectionError) as caught:
        checkpoints.locate(published)
    message = str(caught.value)
    assert all(part in message for part in (url, f"{tmp_path}/cache/weights/mine.safetensors", "PNML_WEIGHTS"))

    calls: list[object] = []

    def fake(url: str, destination: Path, *, sha256: str, what: str) -> Path:
        calls.extend([url, destination, sha256, what])
        return destination

    monkeypatch.setattr(checkpoints, "download", fake)
    target = tmp_path / "cache" / "weights" / "mine.safetensors"
    assert checkpoints.locate(published) == target
    assert calls == [url, target, checkpoint.sha256, "the weights mine"]


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


@HAS_WEIGHTS
@HAS_DATA
def test_published_densenet_classifies_cifar10() -> None:
    data = pytest.importorskip("pnml_bench.data")
    test = data.load("cifar10", limit=192)
    network = zoo.load("densenet-bc-100_cifar10")
    with torch.inference_mode():
        predicted = torch.cat([network(network.normalise(batch)).argmax(1) for batch in test.batches(16)])
    assert (predicted.numpy() == test.labels).mean() > 0.9


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
