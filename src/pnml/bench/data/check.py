"""Comparing the sets on disk with what was published."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pnml.bench.data.registry import load
from pnml.io.download import verify

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.bench.data.source import Layout, Source


@dataclass(frozen=True)
class Check:
    """The state of one split of a set.

    Attributes:
        name: the set.
        split: its split.
        folder: where it is, or None if it is in no data folder.
        images: how many images were read.
        checksummed: whether digests of its files are known, and were compared.
        note: what is special about the set.
        problems: what differs from the published set, in words; empty if nothing does.
    """

    name: str
    split: str
    folder: Path | None
    images: int = 0
    checksummed: bool = False
    note: str = ""
    problems: tuple[str, ...] = ()


def check(source: Source) -> list[Check]:
    """Read every split of a stored set and compare counts and, where they are known, checksums.

    A set that is decoded as it is used, because it is too large for memory, is counted without decoding it.
    """
    return [_check_split(source, split) for split in source.counts]


def _check_split(source: Source, split: str) -> Check:
    found = source.find(split)
    if found is None:
        return Check(source.name, split, None)
    layout, folder = found
    problems = _differing_files(layout, folder, split)
    images, note = 0, ""
    try:
        loaded = load(source.name, split=split)
    except (OSError, ValueError) as error:
        problems.append(str(error))
    else:
        images, note = len(loaded), loaded.note
        if images != source.counts[split]:
            problems.append(f"{images:,} images, {source.counts[split]:,} were published")
    checksummed = all(file in layout.md5 for file in layout.needs[split])
    return Check(source.name, split, folder, images, checksummed, note, tuple(problems))


def _differing_files(layout: Layout, folder: Path, split: str) -> list[str]:
    problems = []
    for file in layout.needs[split]:
        if file in layout.md5:
            try:
                verify(folder / file, md5=layout.md5[file])
            except ValueError:
                problems.append(f"{file} is not the published file (its md5 differs)")
    return problems
