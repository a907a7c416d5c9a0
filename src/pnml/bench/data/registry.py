"""The image sets of the paper, and loading them by name."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pnml.bench.data.cifar import CIFAR10_FILES, CIFAR100_FILES, read_cifar10, read_cifar100
from pnml.bench.data.folder import read_folder
from pnml.bench.data.image_set import ImageSet
from pnml.bench.data.imagenet30 import FOLDERS, read_imagenet30
from pnml.bench.data.noise import COUNT, make_gaussian, make_uniform
from pnml.bench.data.odin import read_archive
from pnml.bench.data.parquet import read_parquet
from pnml.bench.data.selection import Selection
from pnml.bench.data.source import Download, Layout, Source
from pnml.bench.data.svhn import FILES, read_svhn
from pnml.bench.data.tinyimagenet import read_crop, read_resize
from pnml.io.decode import resized

if TYPE_CHECKING:
    import os

    from pnml.bench.data.selection import Contents

_TORONTO = "https://www.cs.toronto.edu/~kriz"
_STANFORD = "http://ufldl.stanford.edu/housenumbers"
_DRIVE = "https://drive.google.com/file/d"
_SVHN_MD5 = {
    "train_32x32.mat": "e26dedcc434d2e4c54c9b2d4a06d8373",
    "test_32x32.mat": "eb5a983be6a315427106f1b164d9cef3",
}
_TINY = Download(
    "http://cs231n.stanford.edu/tiny-imagenet-200.zip", "tiny-imagenet-200.zip", "90528d7ca1a48142e341f4ef8d21d0de"
)
_TINY_TEST = {"test": ("test/images",)}


def _odin(key: str, folder: str, md5: str) -> Layout:
    """One of ODIN's archives on Dropbox; its pictures lie in the folder or deeper."""
    file = f"{folder}.tar.gz"
    download = Download(f"https://www.dropbox.com/s/{key}/{file}?dl=1", file, md5)
    return Layout(folder, {"test": ("",)}, read_archive, (download,))


_SOURCES = (
    Source(
        "cifar10",
        "CIFAR-10: 32×32 photographs, 10 classes",
        {"train": 50_000, "test": 10_000},
        (
            Layout(
                "cifar-10-batches-py",
                CIFAR10_FILES,
                read_cifar10,
                (
                    Download(
                        f"{_TORONTO}/cifar-10-python.tar.gz",
                        "cifar-10-python.tar.gz",
                        "c58f30108f718f92721af3b95e74349a",
                    ),
                ),
                md5={
                    "data_batch_1": "c99cafc152244af753f735de768cd75f",
                    "data_batch_2": "d4bba439e000b95fd0a9bffe97cbabec",
                    "data_batch_3": "54ebc095f3ab1f0389bbae665268c751",
                    "data_batch_4": "634d18415352ddfa80567beed471001a",
                    "data_batch_5": "482c414d41f54cd18b22e5b47cb7c3cb",
                    "test_batch": "40351d587109b95175f43aff81a1287e",
                },
            ),
        ),
    ),
    Source(
        "cifar100",
        "CIFAR-100: 32×32 photographs, 100 classes",
        {"train": 50_000, "test": 10_000},
        (
            Layout(
                "cifar-100-python",
                CIFAR100_FILES,
                read_cifar100,
                (
                    Download(
                        f"{_TORONTO}/cifar-100-python.tar.gz",
                        "cifar-100-python.tar.gz",
                        "eb9058c3a382ffc7106e4002c42a8d85",
                    ),
                ),
                md5={"train": "16019d7e3df5f24257cddd939b257f8d", "test": "f0ef6b0ae62326f3e7ffdfab6717acfc"},
            ),
        ),
    ),
    Source(
        "svhn",
        "SVHN: 32×32 house-number digits, 10 classes",
        {"train": 73_257, "test": 26_032},
        (
            Layout(
                "svhn",
                FILES,
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
            Layout("tiny-imagenet-200", _TINY_TEST, read_crop, (_TINY,)),
        ),
    ),
    Source(
        "tinyimagenet_resize",
        "TinyImageNet, resized to 32×32",
        {"test": 10_000},
        (
            _odin("kp3my3412u5k9rl", "Imagenet_resize", "0f9ff11d45babf2eff5fe12281d1ac31"),
            Layout("tiny-imagenet-200", _TINY_TEST, read_resize, (_TINY,)),
        ),
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
                FOLDERS,
                read_imagenet30,
                pages=(
                    f"{_DRIVE}/1B5c39Fc3haOPzlehzmpTLz6xLtGyKEy4/view",
                    f"{_DRIVE}/13xzVuQMEhSnBRZr-YaaO08coLU2dxAUq/view",
                ),
            ),
        ),
    ),
    Source("uniform", "noise, uniform in [0, 255)", {"test": COUNT}, make=make_uniform),
    Source("gaussian", "noise, normal around 127.5 with deviation 255, clipped", {"test": COUNT}, make=make_gaussian),
)

SETS: dict[str, Source] = {source.name: source for source in _SOURCES}


def available(split: str = "test", *, root: str | os.PathLike[str] | None = None) -> list[str]:
    """The names of the sets that can be loaded now, from the data folders or because they are drawn.

    >>> [name for name in available() if name in ("uniform", "gaussian")]
    ['uniform', 'gaussian']
    """
    return [
        name
        for name, source in SETS.items()
        if split in source.counts and (source.make is not None or source.find(split, root) is not None)
    ]


def load(
    name: str | os.PathLike[str],
    *,
    split: str = "test",
    limit: int | None = None,
    seed: int = 0,
    size: int | None = None,
    root: str | os.PathLike[str] | None = None,
) -> ImageSet:
    """Load an image set by name, or any folder of pictures or parquet file by path.

    Named sets are looked for in the folders of the environment variable ``PNML_DATA``, then in the cache, in the
    layouts of their publishers.

    Args:
        name: a key of ``SETS``, or a path (write ``./cifar10`` for a folder that is called like a set).
        split: "train" or "test", as far as the set has them; a path is read whole, whatever the split is called.
        limit: at most this many images, evenly spaced over the set.
        seed: of noise, and of crops that are made here.
        size: the side in pixels to resize every image to (bilinear, antialiased); by default as published, and
            254 for ImageNet-30, as in the paper.
        root: look only in this data folder.

    Raises:
        DataNotFoundError: the set is in no data folder; the message says what is expected where.

    >>> load("gaussian", limit=100, seed=1)
    ImageSet('gaussian', 'test', 100 images of 32×32 pixels)
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be 1 or more, or None for all images, not {limit}")
    if size is not None and size < 1:
        raise ValueError(f"size must be 1 pixel or more, or None for the published size, not {size}")
    selection = Selection(split, limit, seed, size)
    source = SETS.get(str(name))
    expected = None
    if source is None:
        contents = _read_path(Path(name), selection)
    else:
        contents = _read_source(source, selection, root)
        expected = source.counts[split]
    images = contents.images if size is None else resized(contents.images, size)
    return ImageSet(str(name), images, contents.labels, split, _note(contents, expected))


def _read_source(source: Source, selection: Selection, root: str | os.PathLike[str] | None) -> Contents:
    if selection.split not in source.counts:
        splits = " or ".join(repr(split) for split in source.counts)
        raise ValueError(f"{source.name} has no split {selection.split!r}: {splits} is expected")
    if source.make is not None:
        return source.make(selection)
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
        f"unknown image set {str(path)!r}: the name of a set ({', '.join(SETS)}), or the path of an existing "
        "folder of pictures or .parquet file, is expected"
    )


def _note(contents: Contents, expected: int | None) -> str:
    """What is special about the contents, in words."""
    notes = [contents.note] if contents.note else []
    if expected is not None and contents.total != expected:
        notes.append(f"{contents.total:,} of the {expected:,} published images")
    if len(contents.images) < contents.total:
        notes.append(f"limited to {len(contents.images):,} images, evenly spaced")
    return "; ".join(notes)
