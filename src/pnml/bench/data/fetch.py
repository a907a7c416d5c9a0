"""Fetching published sets: downloaded, checked, unpacked, and only then given their name."""

from __future__ import annotations

import gzip
import shutil
import tarfile
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import track

from pnml.bench.data.source import fetch_folder
from pnml.io.download import download

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from pnml.bench.data.source import Download, Layout, Source

_Member = TypeVar("_Member")
_DAMAGE = (tarfile.TarError, zipfile.BadZipFile, gzip.BadGzipFile, zlib.error, EOFError)


def fetch(source: Source) -> Path | None:
    """Download and unpack a set into the cache, unless some data folder has all of it.

    Returns:
        Its folder; None for noise, which is drawn and needs no files.

    Raises:
        ConnectionError: the publisher cannot be reached; what arrived is kept for the next try.
        ValueError: what arrived is not what was published, or no program can fetch the set.
    """
    if source.make is not None:
        return None
    best = source.layouts[0]
    found = [source.find(split) for split in source.counts]
    present = [folder for layout, folder in filter(None, found) if layout is best]
    if len(present) == len(found):
        return present[0]
    if not best.downloads:
        raise ValueError(f"{source.name} cannot be fetched by a program. Get it {source.how_to_get()}")
    root = fetch_folder()
    try:
        for part in best.downloads:
            _fetch_part(part, best, root, source.name)
    except (ConnectionError, ValueError) as error:
        raise type(error)(f"{error}{_instead(source)}") from error
    lost = [path for split in source.counts for path in best.missing(root, split)]
    if lost:
        raise ValueError(f"{source.name} was fetched, but {lost[0]} is not in it")
    return root / best.folder


def _fetch_part(part: Download, layout: Layout, root: Path, name: str) -> None:
    target = root / layout.folder
    if part.archive and target.exists():
        raise ValueError(f"{target} is there but incomplete: move it away, then fetch {name} again")
    file = download(part.url, root / part.file, md5=part.md5, what=name)
    if part.archive:
        unpack(file, target)
        file.unlink()


def _instead(source: Source) -> str:
    """The other layouts the set can be made from."""
    urls = [part.url for layout in source.layouts[1:] for part in layout.downloads]
    return f". Instead, {' or '.join(urls)} unpacked in {fetch_folder()} will do" if urls else ""


def unpack(archive: Path, target: Path) -> None:
    """Unpack a .tar.gz or .zip that holds a folder called as ``target``, which appears only when it is whole.

    An archive with a name that leads outside of it is refused with a ``ValueError``.
    """
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # of a fetch that was killed
    partial.mkdir(parents=True)
    try:
        if zipfile.is_zipfile(archive):
            _unzip(archive, partial, target.name)
        else:
            _untar(archive, partial, target.name)
        whole = partial / target.name
        if not whole.is_dir():
            raise ValueError(f"{archive} holds no folder {target.name}")
        whole.replace(target)
    except _DAMAGE as error:
        raise ValueError(f"{archive} cannot be unpacked: {error}; delete it and fetch it again") from error
    finally:
        shutil.rmtree(partial)


def _unzip(archive: Path, folder: Path, what: str) -> None:
    with zipfile.ZipFile(archive) as packed:
        names = packed.namelist()
        _refuse_outside(archive, names)
        for name in _tracked(names, what):
            packed.extract(name, folder)


def _untar(archive: Path, folder: Path, what: str) -> None:
    with gzip.open(archive) as stream:
        while stream.read(1 << 20):  # to the end, where its checksum is compared: tarfile stops short of it
            pass
    with tarfile.open(archive, "r:gz") as packed:
        members = packed.getmembers()
        _refuse_outside(archive, [member.name for member in members])
        for member in _tracked(members, what):
            packed.extract(member, folder, filter="data")  # which also refuses devices and links to outside


def _refuse_outside(archive: Path, names: Iterable[str]) -> None:
    for name in names:
        for path in (PurePosixPath(name), PureWindowsPath(name)):
            if path.anchor or ".." in path.parts:
                raise ValueError(f"{archive} is refused: the name {name!r} in it leads outside of the archive")


def _tracked(members: Sequence[_Member], what: str) -> Iterable[_Member]:
    return track(members, description=f"unpacking {what}", console=Console(stderr=True))
