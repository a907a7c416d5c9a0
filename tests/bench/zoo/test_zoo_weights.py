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

from pnml.bench import zoo
from pnml.bench.zoo import checkpoints
from pnml.bench.zoo.normalisation import CIFAR

if TYPE_CHECKING:
    from pathlib import Path

DENSENETS = [name for name in zoo.CHECKPOINTS if name.startswith("densenet")]
HAS_WEIGHTS = pytest.mark.skipif("PNML_WEIGHTS" not in os.environ, reason="PNML_WEIGHTS names no folder of checkpoints")
HAS_DATA = pytest.mark.skipif("PNML_DATA" not in os.environ, reason="PNML_DATA names no folder of image sets")


@pytest.fixture
def network() -> zoo.Network:
    torch.manual_seed(0)
    made = zoo.create("resnet-20", 7)
    with torch.no_grad():
        made(torch.randn(8, 3, 32, 32))  # the batch norms see something
    return made.eval()


@pytest.fixture
def mine(network: zoo.Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> zoo.Checkpoint:
    """A registered checkpoint whose file lies in ``tmp_path / "source"``, which is looked at by nobody yet."""
    path = tmp_path / "source" / "mine.safetensors"
    path.parent.mkdir()
    zoo.save(network, path)
    checkpoint = zoo.Checkpoint(
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
    monkeypatch.setitem(zoo.CHECKPOINTS, "mine", checkpoint)
    monkeypatch.setenv("PNML_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PNML_WEIGHTS", raising=False)
    return checkpoint


def same(first: zoo.Network, second: zoo.Network) -> bool:
    a, b = first.state_dict(), second.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a.keys() | b.keys() if "num_batches" not in name)


def test_round_trip(network: zoo.Network, tmp_path: Path) -> None:
    network.normalise = zoo.Normalise((0.1, 0.2, 0.3), (0.4, 0.5, 0.6))
    zoo.save(network.to(memory_format=torch.channels_last), tmp_path / "it.safetensors")  # type: ignore[call-overload]
    loaded = zoo.load(tmp_path / "it.safetensors")
    assert loaded.architecture == "resnet-20"
    assert not loaded.training
    assert same(loaded, network)
    assert torch.equal(loaded.normalise.mean, network.normalise.mean)
    assert torch.equal(loaded.normalise.std, network.normalise.std)
    assert list(tmp_path.iterdir()) == [tmp_path / "it.safetensors"]
    # Telling what the file says itself is allowed, too.
    assert same(zoo.load(str(tmp_path / "it.safetensors"), architecture="resnet-20", num_classes=7), network)


@pytest.mark.parametrize("suffix", [".pth", ".pt", ".safetensors"])
def test_bare_state_dicts_of_others(network: zoo.Network, tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"theirs{suffix}"
    state = {k: v for k, v in network.state_dict().items() if not k.endswith("num_batches_tracked")}
    if suffix == ".safetensors":
        save_file(state, path)
    else:
        torch.save(state, path)
    with pytest.raises(ValueError, match="give architecture= one of densenet-bc-100, resnet-34"):
        zoo.load(path)
    loaded = zoo.load(path, architecture="resnet-20")
    assert same(loaded, network)
    torch.testing.assert_close(loaded.normalise.mean.flatten(), torch.tensor(CIFAR.mean))


def test_torch_files_with_version_metadata(network: zoo.Network, tmp_path: Path) -> None:
    state = network.state_dict()
    for name in [k for k in state if k.endswith("num_batches_tracked")]:
        del state[name]
    torch.save(state, tmp_path / "theirs.pth")
    assert same(zoo.load(tmp_path / "theirs.pth", architecture="resnet-20"), network)


def test_only_named_networks_are_saved(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"made by zoo\.create or zoo\.load"):
        zoo.save(zoo.ARCHITECTURES["resnet-20"](10), tmp_path / "it.safetensors")
    assert list(tmp_path.iterdir()) == []


def test_wrong_network(network: zoo.Network, tmp_path: Path) -> None:
    path = tmp_path / "it.safetensors"
    zoo.save(network, path)
    with pytest.raises(ValueError, match=r"no wideresnet-40-2 with 7 classes.*missing \(.*, \.\.\.\).*unknown.*shape"):
        zoo.load(path, architecture="wideresnet-40-2")
    message = (
        r"no resnet-20 with 8 classes; of its tensors 2 of another shape "
        r"\(linear\.bias \(7,\) instead of \(8,\), linear\.weight \(7, 64\) instead of \(8, 64\)\)$"
    )
    with pytest.raises(ValueError, match=message):
        zoo.load(path, num_classes=8)
    with pytest.raises(ValueError, match="no architecture is named 'resnet-50'"):
        zoo.load(path, architecture="resnet-50")


@pytest.mark.parametrize("name", ["bn1.running_var", "layer3.2.conv2.weight"])
def test_nothing_may_be_missing(network: zoo.Network, tmp_path: Path, name: str) -> None:
    state = network.state_dict()
    del state[name]
    torch.save(state, tmp_path / "it.pth")
    with pytest.raises(ValueError, match=rf"1 missing \({name}\)$"):
        zoo.load(tmp_path / "it.pth", architecture="resnet-20")


def test_nothing_may_be_too_much(network: zoo.Network, tmp_path: Path) -> None:
    torch.save(network.state_dict() | {"layer4.weight": torch.zeros(1)}, tmp_path / "it.pth")
    with pytest.raises(ValueError, match=r"1 unknown \(layer4\.weight\)$"):
        zoo.load(tmp_path / "it.pth", architecture="resnet-20")


def test_count_of_linear_layers(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2, 2), "b": torch.zeros(3, 3)}, tmp_path / "it.safetensors")
    with pytest.raises(ValueError, match="2 linear layers"):
        zoo.load(tmp_path / "it.safetensors", architecture="resnet-20")


@pytest.mark.parametrize(
    "content", [nn.Linear(1, 1), {"state_dict": {"w": torch.zeros(1)}}, [torch.zeros(1)], {"epoch": 3}]
)
def test_torch_files_that_are_no_state_dict(tmp_path: Path, content: object) -> None:
    torch.save(content, tmp_path / "it.pth")
    with pytest.raises(ValueError, match=r"it\.pth .*state dict"):
        zoo.load(tmp_path / "it.pth", architecture="resnet-20")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("it.safetensors", b"no tensors", "not a safetensors file"),
        ("it.pth", b"no tensors", "cannot be read as a state dict"),
        ("it.pth", b"", "cannot be read as a state dict"),
        ("it.npz", b"", r"\.safetensors, \.pt or \.pth is expected"),
    ],
)
def test_files_of_another_kind(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message):
        zoo.load(tmp_path / name, architecture="resnet-20")


def test_unknown_name() -> None:
    with pytest.raises(FileNotFoundError, match=r"'resnet-7' is neither a file nor .* densenet-bc-100_cifar10"):
        zoo.load("resnet-7")


def test_missing_file_is_named_with_both_places(
    mine: zoo.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        zoo.load("mine")
    message = str(caught.value)
    assert all(
        part in message for part in ("mine.safetensors", "PNML_WEIGHTS names (not set)", f"{tmp_path}/cache/weights")
    )
    monkeypatch.setenv("PNML_WEIGHTS", str(tmp_path / "elsewhere"))
    with pytest.raises(FileNotFoundError, match=f"PNML_WEIGHTS names.*{tmp_path}/elsewhere"):
        zoo.load("mine")


def test_lookup_order(
    mine: zoo.Checkpoint, network: zoo.Network, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, cached = tmp_path / "source" / mine.filename, tmp_path / "cache" / "weights" / mine.filename
    cached.parent.mkdir(parents=True)
    cached.write_bytes(source.read_bytes())
    assert checkpoints.locate(mine) == cached
    monkeypatch.setenv("PNML_WEIGHTS", os.pathsep.join([str(tmp_path / "empty"), str(source.parent)]))
    assert checkpoints.locate(mine) == source
    loaded = zoo.load("mine")
    assert same(loaded, network)
    # What the registry says of the normalisation counts, not what the file says.
    torch.testing.assert_close(loaded.normalise.std.flatten(), torch.tensor(mine.std))

    source.write_bytes(source.read_bytes() + b"!")
    with pytest.raises(ValueError, match=f"sha256 {mine.sha256} expected"):
        zoo.load("mine")


def test_contradiction_of_the_registry(mine: zoo.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PNML_WEIGHTS", str(tmp_path / "source"))
    zoo.load("mine", architecture="resnet-20", num_classes=7)
    with pytest.raises(ValueError, match="mine is a resnet-20 with 7 classes, not architecture='resnet-34'"):
        zoo.load("mine", architecture="resnet-34")
    with pytest.raises(ValueError, match="num_classes=10"):
        zoo.load("mine", num_classes=10)


def test_download(mine: zoo.Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/mine.safetensors"
    published = replace(mine, url=url)
    with pytest.raises(ConnectionError) as caught:
        checkpoints.locate(published)
    message = str(caught.value)
    assert all(part in message for part in (url, f"{tmp_path}/cache/weights/mine.safetensors", "PNML_WEIGHTS"))

    asked: list[object] = []

    def fake(url: str, destination: Path, *, sha256: str, what: str) -> Path:
        asked.extend([url, destination, sha256, what])
        return destination

    monkeypatch.setattr(checkpoints, "download", fake)
    target = tmp_path / "cache" / "weights" / "mine.safetensors"
    assert checkpoints.locate(published) == target
    assert asked == [url, target, mine.sha256, "the weights mine"]


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
def test_published_densenet_knows_cifar10() -> None:
    data = pytest.importorskip("pnml.bench.data")
    test = data.load("cifar10", split="test").take(192)
    network = zoo.load("densenet-bc-100_cifar10")
    with torch.inference_mode():
        predicted = torch.cat([network(network.normalise(batch)).argmax(1) for batch in test.batches(16)])
    assert (predicted.numpy() == test.labels).mean() > 0.9
