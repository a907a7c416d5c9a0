"""Download published image sets, verify and unpack them."""

from __future__ import annotations

import shutil
import tarfile
import zipfile
import zlib
from typing import TYPE_CHECKING

from pnml_bench.data.download import download
from pnml_bench.data.source import fetch_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pnml_bench.data.source import Download, Layout, Source

_UNPACK_ERRORS = (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError)


def fetch(source: Source) -> Path | None:
    """Download and unpack a set into the cache, unless a data folder has all its splits.

    Returns:
        Its folder; None for noise, which is generated and has no files.

    Raises:
        ConnectionError: the download failed; the part received is kept for the next attempt.
        ValueError: the download differs from the published file, or the set can only be downloaded by hand.
    """
    if source.generate is not None:
        return None
    layout = source.layouts[0]
    found = [source.find(split) for split in source.counts]
    present = [folder for found_layout, folder in filter(None, found) if found_layout is layout]
    if len(present) == len(found):
        return present[0]
    if not layout.downloads:
        raise ValueError(f"{source.name} cannot be downloaded automatically. Get it {source.how_to_get()}")
    root = fetch_folder()
    try:
        for part in layout.downloads:
            _fetch_part(part, layout, root, source.name)
    except (ConnectionError, ValueError) as error:
        raise type(error)(f"{error}{_alternative(source)}") from error
    missing = [path for split in source.counts for path in layout.missing(root, split)]
    if missing:
        raise ValueError(f"{source.name} was downloaded, but {missing[0]} is not in it")
    return root / layout.folder


def _fetch_part(part: Download, layout: Layout, root: Path, name: str) -> None:
    target = root / layout.folder
    if part.archive and target.exists():
        raise ValueError(f"{target} exists but is incomplete: move it away, then fetch {name} again")
    file = download(part.url, root / part.file, md5=part.md5, what=name)
    if part.archive:
        unpack(file, target)
        file.unlink()


def _alternative(source: Source) -> str:
    """Return a sentence about the other layouts of the set, if it has any."""
    urls = [part.url for layout in source.layouts[1:] for part in layout.downloads]
    return f". Alternatively, unpack {' or '.join(urls)} in {fetch_folder()}" if urls else ""


def unpack(archive: Path, target: Path) -> None:
    """Unpack a .tar.gz or .zip with a top-level folder named like ``target``, which is created only when complete.

    Raises:
        ValueError: the archive is damaged, lacks the folder, or has a member that leads outside of it.
    """
    partial = target.with_name(f".{target.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
    partial.mkdir(parents=True)
    try:
        if zipfile.is_zipfile(archive):
            with zipfile.ZipFile(archive) as file:
                file.extractall(partial)  # noqa: S202 - leaves "..", drives and the root out of names
        else:
            with tarfile.open(archive) as file:
                file.extractall(partial, filter="data")  # refuses devices, and what leads outside
        complete = partial / target.name
        if not complete.is_dir():
            raise ValueError(f"{archive} contains no folder {target.name}")
        complete.replace(target)
    except _UNPACK_ERRORS as error:
        raise ValueError(f"{archive} cannot be unpacked: {error}; delete it and fetch it again") from error
    finally:
        shutil.rmtree(partial)
