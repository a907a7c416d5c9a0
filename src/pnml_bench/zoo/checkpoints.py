"""The published checkpoints, and a function that locates their files."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pnml.demo.assets import FOLDER as ASSETS
from pnml_bench.data.download import cache_dir, download, verify
from pnml_bench.zoo.network import CIFAR, IMAGENET, Channels


@dataclass(frozen=True)
class Checkpoint:
    """A published file of trained weights.

    Attributes:
        name: its name for :func:`pnml_bench.zoo.load`.
        architecture: the name of its network in the zoo.
        num_classes: the number of classes.
        trained_on: the image set it was trained on, as named in :mod:`pnml_bench.data`.
        mean: mean of each channel, for images in [0, 1].
        std: standard deviation of each channel, for images in [0, 1].
        filename: the name of the file.
        url: the address of the file; None if it is not published.
        sha256: the file's digest in hex, or the prefix that its publisher gives.
        note: who published it and how it was trained.
    """

    name: str
    architecture: str
    num_classes: int
    trained_on: str
    mean: Channels
    std: Channels
    filename: str
    url: str | None
    sha256: str
    note: str


def _densenet(variant: str, trained_on: str, num_classes: int, sha256: str, note: str) -> Checkpoint:
    name = f"densenet-bc-100{variant}_{trained_on}"
    return Checkpoint(
        name, "densenet-bc-100", num_classes, trained_on, *CIFAR, f"{name}.safetensors", None, sha256, note
    )


def _torchvision(architecture: str, filename: str) -> Checkpoint:
    return Checkpoint(
        name=f"{architecture}_imagenet",
        architecture=architecture,
        num_classes=1000,
        trained_on="imagenet",
        mean=IMAGENET.mean,
        std=IMAGENET.std,
        filename=filename,
        url=f"https://download.pytorch.org/models/{filename}",
        sha256=filename.removesuffix(".pth").rpartition("-")[2],
        note="torchvision, IMAGENET1K_V1",
    )


_ODIN = "published with ODIN (Liang et al., 2018), converted to safetensors"
_MAHALANOBIS = "published with the Mahalanobis detector (Lee et al., 2018), converted to safetensors"
_OECC = "tuned with OECC (Papadopoulos et al., 2021) and published with it, converted to safetensors"

CHECKPOINTS: dict[str, Checkpoint] = {
    checkpoint.name: checkpoint
    for checkpoint in (
        _densenet("", "cifar10", 10, "08464c3bb60ef9b05370a10dc50d52cc84a09af9760038d58a1902439896998a", _ODIN),
        _densenet("", "cifar100", 100, "3acf75accd1913b85b5cbcc7b4a7cedb1a5df57ea94d7a388b25b0363e10f564", _ODIN),
        _densenet("", "svhn", 10, "be7be9c3e14b956136b73ff864d5f64ac0a1247a38af75e357098bf3bd9ea71b", _MAHALANOBIS),
        _densenet("-oecc", "cifar10", 10, "72ab18e53d6af5dfff74d490b19e4285880f90cb17d8902fec2ff7b81e595e13", _OECC),
        _densenet("-oecc", "cifar100", 100, "1fe8d640d01bf678b5a330ea308a159fa7bcdfe076b904f8a75f1fd12b9fa6e4", _OECC),
        _densenet("-oecc", "svhn", 10, "578ed8a52334c508e14061a9d667e544da1f992c1fef98052e2e99d7eed132a0", _OECC),
        Checkpoint(
            name="resnet-20_cifar10",
            architecture="resnet-20",
            num_classes=10,
            trained_on="cifar10",
            mean=CIFAR.mean,
            std=CIFAR.std,
            filename="resnet-20_cifar10.safetensors",
            url=None,
            sha256="82753ead900828d6cc6a08d3e82201ab7b6d934e72c26a02657ddba4867e676d",
            note="the network of pnml demo, part of this package",
        ),
        _torchvision("resnet-18", "resnet18-f37072fd.pth"),
        _torchvision("resnet-101", "resnet101-63fe2227.pth"),
    )
}


def locate(checkpoint: Checkpoint) -> Path:
    """Return the verified file of ``checkpoint``, from ``PNML_WEIGHTS``, the cache, the package or a download.

    ``PNML_WEIGHTS`` is one folder, or several separated as in ``PATH``.
    """
    folders = [Path(folder).expanduser() for folder in os.environ.get("PNML_WEIGHTS", "").split(os.pathsep) if folder]
    cached = cache_dir() / "weights"
    for folder in (*folders, cached, ASSETS):
        path = folder / checkpoint.filename
        if path.is_file():
            verify(path, sha256=checkpoint.sha256)
            return path
    own = f"a folder of PNML_WEIGHTS ({os.pathsep.join(map(str, folders)) or 'not set'})"
    if checkpoint.url is None:
        raise FileNotFoundError(
            f"the weights {checkpoint.name} were not found and cannot be downloaded: put {checkpoint.filename} "
            f"into {own} or into {cached}"
        )
    destination, what = cached / checkpoint.filename, f"the weights {checkpoint.name}"
    try:
        return download(checkpoint.url, destination, sha256=checkpoint.sha256, what=what)
    except ConnectionError as error:
        raise ConnectionError(f"{error}, or into {own}") from error
