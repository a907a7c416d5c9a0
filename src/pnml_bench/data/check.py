"""Compare the image sets on disk with the published ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pnml_bench.data.download import verify
from pnml_bench.data.registry import load

if TYPE_CHECKING:
    from pathlib import Path

    from pnml_bench.data.source import Layout, Source


@dataclass(frozen=True)
class Check:
    """The result of checking one split of a set.

    Attributes:
        name: the set.
        split: its split.
        folder: where it was found; None if it is in no data folder.
        images: the number of images read.
        checksummed: whether the digests of its files are known and were compared.
        note: what differs from the published images by design, such as new crops.
        problems: the differences from the published set; empty if there are none.
    """

    name: str
    split: str
    folder: Path | None
    images: int = 0
    checksummed: bool = False
    note: str = ""
    problems: tuple[str, ...] = ()


def check(source: Source) -> list[Check]:
    """Read every split of a stored set and compare the counts and, where known, the checksums.

    Sets too large for memory are counted without decoding them.
    """
    return [_check_split(source, split) for split in source.counts]


def _check_split(source: Source, split: str) -> Check:
    found = source.find(split)
    if found is None:
        return Check(source.name, split, None)
    layout, folder = found
    checksummed = all(file in layout.md5 for file in layout.required[split])
    problems = _differing_files(layout, folder, split)
    if problems:  # other files are not read: what reads .mat files trusts them
        return Check(source.name, split, folder, checksummed=checksummed, problems=tuple(problems))
    try:
        loaded = load(source.name, split=split)
    except (OSError, ValueError) as error:
        return Check(source.name, split, folder, checksummed=checksummed, problems=(str(error),))
    if len(loaded) != source.counts[split]:
        problems.append(f"expected {source.counts[split]:,} images, found {len(loaded):,}")
    return Check(source.name, split, folder, len(loaded), checksummed, loaded.note, tuple(problems))


def _differing_files(layout: Layout, folder: Path, split: str) -> list[str]:
    problems = []
    for file in layout.required[split]:
        if file in layout.md5:
            try:
                verify(folder / file, md5=layout.md5[file])
            except ValueError:
                problems.append(f"the md5 of {file} differs from the published file")
    return problems
