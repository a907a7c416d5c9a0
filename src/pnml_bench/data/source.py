"""Describe a published image set: its layouts on disk, where to download it, and how to read it."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pnml_bench.data.download import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pnml_bench.data.selection import Contents, Reader, Selection


class DataNotFoundError(FileNotFoundError):
    """Raised for an image set, ``name``, that is in none of the data folders."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True)
class Download:
    """A file to download.

    Attributes:
        url: its address.
        file: its path below a data folder.
        md5: its digest.
        archive: whether to unpack the file and then delete it.
    """

    url: str
    file: str
    md5: str
    archive: bool = True


@dataclass(frozen=True)
class Layout:
    """One layout of a set on disk.

    Attributes:
        folder: the set's folder below a data folder.
        required: the paths in that folder that each split requires.
        read: reads the contents of the folder.
        downloads: the files it is made of.
        pages: where to download it by hand if it cannot be automated.
        md5: digests of the published files in the folder, where known.
    """

    folder: str
    required: Mapping[str, tuple[str, ...]]
    read: Reader
    downloads: tuple[Download, ...] = ()
    pages: tuple[str, ...] = ()
    md5: Mapping[str, str] = field(default_factory=dict)

    def missing(self, root: Path, split: str) -> list[Path]:
        """Return the paths that the split requires and ``root`` does not have."""
        return [path for path in (root / self.folder / name for name in self.required[split]) if not path.exists()]


@dataclass(frozen=True)
class Source:
    """An image set that can be loaded by name.

    Attributes:
        name: its name in commands and results.
        description: one line about it.
        counts: the published number of images of each split.
        layouts: its layouts on disk, in order of preference.
        generate: generates the set if it is not stored on disk.
    """

    name: str
    description: str
    counts: Mapping[str, int]
    layouts: tuple[Layout, ...] = ()
    generate: Callable[[Selection], Contents] | None = None

    def find(self, split: str, root: str | os.PathLike[str] | None = None) -> tuple[Layout, Path] | None:
        """Return the preferred layout found in a data folder, and the set's folder there."""
        for layout in self.layouts:
            for base in data_folders(root):
                if not layout.missing(base, split):
                    return layout, base / layout.folder
        return None

    def not_found(self, split: str, root: str | os.PathLike[str] | None = None) -> DataNotFoundError:
        """Return the error that names the expected paths and the way to get them."""
        bases = " or ".join(str(base) for base in data_folders(root))
        paths = " or ".join(
            " and ".join((Path(layout.folder) / name).as_posix() for name in layout.required[split])
            for layout in self.layouts
        )
        return DataNotFoundError(
            f"{self.name} ({split}) was not found: expected {paths} in {bases}. Get it: {self.how_to_get()}; "
            "or set PNML_DATA to the folder that contains it",
            name=self.name,
        )

    def how_to_get(self) -> str:
        """Return the command that downloads the set, or the pages to download it from by hand."""
        layout = self.layouts[0]
        if layout.downloads:
            return f"pnml data fetch {self.name}"
        return f"by hand from {' and '.join(layout.pages)}, unpacked in {fetch_folder() / layout.folder}"


def data_folders(root: str | os.PathLike[str] | None = None) -> list[Path]:
    """Return the folders to search: ``root`` alone if given, else the folders of ``PNML_DATA`` and the cache."""
    if root is not None:
        return [Path(root).expanduser()]
    named = [Path(part).expanduser() for part in os.environ.get("PNML_DATA", "").split(os.pathsep) if part]
    return [*named, fetch_folder()]


def fetch_folder() -> Path:
    """Return the folder for downloaded sets: ``data`` in the cache folder."""
    return cache_dir() / "data"
