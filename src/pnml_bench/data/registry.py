"""The image sets of the paper and of OpenOOD's protocol, and a function that loads them by name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pnml.backend.suggest import did_you_mean
from pnml_bench.data.cifar import CIFAR10_FILES, CIFAR100_FILES, read_cifar10, read_cifar100
from pnml_bench.data.folder import (
    IMAGENET30_FOLDERS,
    read_folder,
    read_imagenet30,
    read_odin,
    read_parquet,
    read_tinyimagenet_crops,
    read_tinyimagenet_resized,
    read_tinyimagenet_sampled,
)
from pnml_bench.data.image_set import ImageSet
from pnml_bench.data.lazy_images import resize_images
from pnml_bench.data.mnist import MNIST_FILES, read_mnist
from pnml_bench.data.noise import COUNT, generate_gaussian, generate_uniform
from pnml_bench.data.selection import Selection
from pnml_bench.data.source import Download, Layout, Source
from pnml_bench.data.svhn import SVHN_FILES, read_svhn
from pnml_bench.data.tiny_imagenet import TINYIMAGENET_FILES, read_tinyimagenet

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from pnml_bench.data.selection import Contents, Reader


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


_STANFORD = "http://ufldl.stanford.edu/housenumbers"
_DRIVE = "https://drive.google.com/file/d"
_SVHN_MD5 = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}


def _cifar(
    classes: int,
    folder: str,
    files: Mapping[str, tuple[str, ...]],
    read: Reader,
    *,
    archive_md5: str,
    md5: dict[str, str],
) -> Source:
    archive = f"cifar-{classes}-python.tar.gz"
    download = Download(f"https://www.cs.toronto.edu/~kriz/{archive}", archive, archive_md5)
    layout = Layout(folder, files, read, (download,), md5=md5)
    description = f"CIFAR-{classes}: 32×32 photographs, {classes} classes"
    return Source(f"cifar{classes}", description, {"train": 50_000, "test": 10_000}, (layout,))


def _odin(key: str, folder: str, md5: str) -> Layout:
    """Return the layout of one of ODIN's archives on Dropbox."""
    file = f"{folder}.tar.gz"
    download = Download(f"https://www.dropbox.com/s/{key}/{file}?dl=1", file, md5)
    return Layout(folder, {"test": ("",)}, read_odin, (download,))


def _tinyimagenet(read: Reader) -> Layout:
    """Return the layout of the original TinyImageNet, whose test images ``read`` crops or resizes."""
    return Layout(TINYIMAGENET_FOLDER, {"test": ("test/images",)}, read, (TINYIMAGENET_DOWNLOAD,))


_SOURCES = (
    _cifar(
        10,
        "cifar-10-batches-py",
        CIFAR10_FILES,
        read_cifar10,
        archive_md5="c58f30108f718f92721af3b95e74349a",
        md5={
            "data_batch_1": "c99cafc152244af753f735de768cd75f",
            "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
            "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
            "data_batch_4": "634d18415352ddfa80567beed471001a",
            "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
            "test_batch": "40351d587109b95175f43aff81a1287e",
        },
    ),
    _cifar(
        100,
        "cifar-100-python",
        CIFAR100_FILES,
        read_cifar100,
        archive_md5="eb9058c3a382ffc7106e4002c42a8d85",
        md5={"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
    ),
    Source(
        "svhn",
        "SVHN: 32×32 house-number digits, 10 classes",
        {"train": 73_257, "test": 26_032},
        (
            Layout(
                "svhn",
                SVHN_FILES,
                read_svhn,
                tuple(
                    Download(f"{_STANFORD}/{file}", f"svhn/{file}", md5, archive=False)
                    for file, md5 in _SVHN_MD5.items()
                ),
                md5=_SVHN_MD5,
            ),
        ),
    ),
    Source(
        "tinyimagenet_crop",
        "TinyImageNet, 32×32 crops",
        {"test": 10_000},
        (
            _odin("avgm2u562itwpkl", "Imagenet", "7c0827e4246c3718a5ee076e999e52e5"),
            _tinyimagenet(read_tinyimagenet_crops),
        ),
    ),
    Source(
        "tinyimagenet_resize",
        "TinyImageNet, resized to 32×32",
        {"test": 10_000},
        (
            _odin("kp3my3412u5k9rl", "Imagenet_resize", "0f9ff11d45babf2eff5fe12281d1ac31"),
            _tinyimagenet(read_tinyimagenet_resized),
        ),
    ),
    Source(
        "tinyimagenet_resize_nearest",
        "TinyImageNet, resized to 32×32 by nearest-neighbour sampling",
        {"test": 10_000},
        (_tinyimagenet(read_tinyimagenet_sampled),),
    ),
    Source(
        "lsun_crop",
        "LSUN scenes, 32×32 crops",
        {"test": 10_000},
        (_odin("fhtsw1m3qxlwj6h", "LSUN", "458a0a0ab8e5f1cb4516d7400568e460"),),
    ),
    Source(
        "lsun_resize",
        "LSUN scenes, resized to 32×32",
        {"test": 10_000},
        (_odin("moqh2wh8696c3yl", "LSUN_resize", "278b7b31c8cb7e804a1465a8ce03a2dc"),),
    ),
    Source(
        "isun",
        "iSUN scenes, resized to 32×32",
        {"test": 8_925},
        (_odin("ssz7qxfqae0cca5", "iSUN", "be77b0f2c26fda898afac5f99645ee70"),),
    ),
    Source(
        "imagenet30",
        "ImageNet-30: photographs resized to 254×254, 30 classes",
        {"train": 39_000, "test": 3_000},
        (
            Layout(
                "imagenet30",
                IMAGENET30_FOLDERS,
                read_imagenet30,
                pages=(
                    f"{_DRIVE}/1B5c39Fc3haOPzlehzmpTLz6xLtGyKEy4/view",
                    f"{_DRIVE}/13xzVuQMEhSnBRZr-YaaO08coLU2dxAUq/view",
                ),
            ),
        ),
    ),
    Source("uniform", "noise, uniform in [0, 255)", {"test": COUNT}, generate=generate_uniform),
    Source(
        "gaussian",
        "noise, normal with mean 127.5 and standard deviation 255, clipped",
        {"test": COUNT},
        generate=generate_gaussian,
    ),
    *OPENOOD_SOURCES,
)

SETS: dict[str, Source] = {source.name: source for source in _SOURCES}


def load(
    name: str | os.PathLike[str],
    *,
    split: str = "test",
    limit: int | None = None,
    seed: int = 0,
    size: int | None = None,
    root: str | os.PathLike[str] | None = None,
) -> ImageSet:
    """Load an image set by name, or any folder of images or parquet file by path.

    Named sets are searched for in the folders of the environment variable ``PNML_DATA``, then in the cache, in the
    layouts of their publishers.

    Args:
        name: a key of ``SETS``, or a path (write ``./cifar10`` for a folder named like a set).
        split: "train" or "test"; ignored for a path.
        limit: the maximum number of images, evenly spaced over the set.
        seed: seed for noise and for the crops of TinyImageNet.
        size: the side in pixels to resize every image to (bilinear, antialiased); by default as published, and
            254 for ImageNet-30, as in the paper.
        root: search only this data folder.

    Raises:
        DataNotFoundError: the set is in no data folder.

    >>> load("gaussian", limit=100, seed=1)
    ImageSet('gaussian', 'test', 100 images of 32×32 pixels)
    """
    if limit is not None and limit < 1:
        raise ValueError(f"expected limit to be at least 1, or None for all images, got {limit}")
    if size is not None and size < 1:
        raise ValueError(f"expected size to be at least 1 pixel, or None for the published size, got {size}")
    selection = Selection(split, limit, seed, size)
    source = SETS.get(str(name))
    expected = None
    if source is None:
        contents = _read_path(Path(name), selection)
    else:
        contents = _read_source(source, selection, root)
        expected = source.counts[split]
    images = contents.images if size is None else resize_images(contents.images, size)
    return ImageSet(str(name), images, contents.labels, split, _note(contents, expected))


def _read_source(source: Source, selection: Selection, root: str | os.PathLike[str] | None) -> Contents:
    if selection.split not in source.counts:
        splits = " or ".join(repr(split) for split in source.counts)
        raise ValueError(f"{source.name} has no split {selection.split!r}: expected {splits}")
    if source.generate is not None:
        return source.generate(selection)
    found = source.find(selection.split, root)
    if found is None:
        raise source.not_found(selection.split, root)
    layout, folder = found
    return layout.read(folder, selection)


def _read_path(path: Path, selection: Selection) -> Contents:
    if path.is_dir():
        return read_folder(path, selection)
    if path.is_file() and path.suffix.lower() == ".parquet":
        return read_parquet(path, selection)
    raise ValueError(
        f"unknown image set {str(path)!r}: expected one of {', '.join(SETS)}, or the path of a folder of images or of "
        f"a .parquet file{did_you_mean(str(path), SETS)}"
    )


def _note(contents: Contents, expected: int | None) -> str:
    """Return how the contents differ from the published set."""
    notes = [contents.note] if contents.note else []
    if expected is not None and contents.total != expected:
        notes.append(f"{contents.total:,} of the {expected:,} published images")
    if len(contents.images) < contents.total:
        notes.append(f"limited to {len(contents.images):,} images, evenly spaced")
    return "; ".join(notes)
