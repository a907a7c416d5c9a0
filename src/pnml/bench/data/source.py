"""How a published set is described: its layouts on disk, where it comes from, how it is read."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from pnml.io.download import cache_dir

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pnml.bench.data.selection import Contents, Reader, Selection


class DataNotFoundError(FileNotFoundError):
    """An image set that is in none of the data folders; ``name`` says which."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


@dataclass(frozen=True)
class Download:
    """A file its publisher offers.

    Attributes:
        url: its address.
        file: where it goes, below a data folder.
        md5: its digest, or None where none is known.
        archive: whether it is unpacked, and then deleted.
    """

    url: str
    file: str
    md5: str | None
    archive: bool = True


@dataclass(frozen=True)
class Layout:
    """One way in which a set lies on disk.

    Attributes:
        folder: its folder, below a data folder.
        needs: what must be in that folder, for each split.
        read: makes the contents from the folder.
        downloads: the files it comes from.
        pages: where a person can fetch it, if no program can.
        md5: digests of the published files in the folder, where known.
    """

    folder: str
    needs: Mapping[str, tuple[str, ...]]
    read: Reader
    downloads: tuple[Download, ...] = ()
    pages: tuple[str, ...] = ()
    md5: Mapping[str, str] = field(default_factory=dict)

    def missing(self, root: Path, split: str) -> list[Path]:
        """What the split needs and ``root`` does not have."""
        return [path for path in (root / self.folder / need for need in self.needs[split]) if not path.exists()]


@dataclass(frozen=True)
class Source:
    """An image set that can be loaded by name.

    Attributes:
        name: as in the paper's tables.
        what: one line about it.
        counts: the published number of images of each split.
        layouts: the best first.
        make: makes a set that is drawn, not stored.
    """

    name: str
    what: str
    counts: Mapping[str, int]
    layouts: tuple[Layout, ...] = ()
    make: Callable[[Selection], Contents] | None = None

    def find(self, split: str, root: str | os.PathLike[str] | None = None) -> tuple[Layout, Path] | None:
        """The best layout that some data folder holds, and the set's folder there."""
        for layout in self.layouts:
            for base in data_folders(root):
                if not layout.missing(base, split):
                    return layout, base / layout.folder
        return None

    def not_found(self, split: str, root: str | os.PathLike[str] | None = None) -> DataNotFoundError:
        """The error that says what is expected where, and how to get it."""
        bases = " or ".join(str(base) for base in data_folders(root))
        ways = " or ".join(
            " and ".join((Path(layout.folder) / need).as_posix() for need in layout.needs[split])
            for layout in self.layouts
        )
        return DataNotFoundError(
            f"{self.name} ({split}) was not found: {ways} is expected in {bases}. Get it: {self.how_to_get()}; "
            "or set PNML_DATA to the folder that holds it",
            name=self.name,
        )

    def how_to_get(self) -> str:
        """The command, or the pages for a person to visit."""
        best = self.layouts[0]
        if best.downloads:
            return f"pnml data fetch {self.name}"
        return f"by hand from {' and '.join(best.pages)}, unpacked in {fetch_folder() / best.folder}"


def data_folders(root: str | os.PathLike[str] | None = None) -> list[Path]:
    """Where sets are looked for: ``root`` alone if given, else the folders of ``PNML_DATA`` and the cache."""
    if root is not None:
        return [Path(root).expanduser()]
    named = [Path(part).expanduser() for part in os.environ.get("PNML_DATA", "").split(os.pathsep) if part]
    return [*named, fetch_folder()]


def fetch_folder() -> Path:
    """Where fetched sets go: ``data`` in the cache folder."""
    return cache_dir() / "data"
