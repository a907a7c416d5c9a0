"""The image sets beyond the paper that OpenOOD's protocol uses, and TinyImageNet as a set to train on."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pnml_bench.data.folder import read_folder
from pnml_bench.data.mnist import MNIST_FILES, read_mnist
from pnml_bench.data.source import Download, Layout, Source
from pnml_bench.data.tiny_imagenet import TINYIMAGENET_FILES, read_tinyimagenet

if TYPE_CHECKING:
    from pathlib import Path

    from pnml_bench.data.selection import Contents, Selection

TINYIMAGENET_FOLDER = "tiny-imagenet-200"
TINYIMAGENET_DOWNLOAD = Download(
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"
)

_PICTURE_SIDE = 256  # of sets whose pictures have many sizes
_MNIST = "https://ossci-datasets.s3.amazonaws.com/mnist/t10k-images-idx3-ubyte.gz"
_DTD = "https://www.robots.ox.ac.uk/~vgg/data/dtd/download/dtd-r1.0.1.tar.gz"


def _read_pictures(folder: Path, selection: Selection) -> Contents:
    """Read pictures of many sizes, resized to squares of 256 pixels unless ``selection`` has a size."""
    return read_folder(folder, replace(selection, size=selection.size or _PICTURE_SIDE), strict=True)


def _read_textures(folder: Path, selection: Selection) -> Contents:
    return _read_pictures(folder / "images", selection)


OPENOOD_SOURCES = (
    Source(
        "tinyimagenet",
        "TinyImageNet-200: 64×64 photographs, 200 classes; test is the publisher's validation part",
        {"train": 100_000, "test": 10_000},
        (Layout(TINYIMAGENET_FOLDER, TINYIMAGENET_FILES, read_tinyimagenet, (TINYIMAGENET_DOWNLOAD,)),),
    ),
    Source(
        "mnist",
        "MNIST: 28×28 handwritten digits",
        {"test": 10_000},
        (
            Layout(
                "mnist",
                MNIST_FILES,
                read_mnist,
                (
                    Download(
                        _MNIST, f"mnist/{MNIST_FILES['test'][0]}", "9fb629c4189551a2d022fa330f9573f3", archive=False
                    ),
                ),
                md5={MNIST_FILES["test"][0]: "9fb629c4189551a2d022fa330f9573f3"},
            ),
        ),
    ),
    Source(
        "textures",
        "Describable Textures: photographs of 47 textures",
        {"test": 5_640},
        (
            Layout(
                "dtd",
                {"test": ("images",)},
                _read_textures,
                (Download(_DTD, "dtd.tar.gz", "fff73e5086ae6bdbea199a49dfb8a4c1"),),
            ),
        ),
    ),
    Source(
        "places365",
        "Places365: the validation photographs of 365 scenes",
        {"test": 36_500},
        (
            Layout(
                "val_256",
                {"test": ("",)},
                _read_pictures,
                pages=("http://data.csail.mit.edu/places/places365/val_256.tar",),
            ),
        ),
    ),
)
