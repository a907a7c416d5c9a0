"""Scores on their way into one file: parts written whole, so that a run that was killed goes on where it stopped."""

from __future__ import annotations

import json
import shutil
import zipfile
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.backend.files import atomic_path

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

Columns = dict[str, "NDArray[Any]"]


def changes(before: dict[str, Any], now: dict[str, Any]) -> str:
    """Say what differs between two manifests, and what to do about it; nothing when nothing does.

    >>> changes({"input": 1, "detector": 2}, {"input": 1, "detector": 3})
    'the detector has changed since. Put it back to go on, or start over with --restart'
    """
    changed = [key for key in {**before, **now} if before.get(key) != now.get(key)]
    if not changed:
        return ""
    return f"the {' and the '.join(changed)} has changed since. Put it back to go on, or start over with --restart"


class Part(NamedTuple):
    """The scores of some consecutive rows of the input, and the images among them that did not decode."""

    columns: Columns
    skipped: list[str]


class Parts:
    """The folder ``OUT.parts``: a manifest that says what is scored with what, and one file per range of rows.

    Every file is written under another name and renamed, so it is whole or not there. A part's name tells the rows of
    the input that it covers; the parts there are always cover the rows from 0 up to some row without a gap.
    """

    def __init__(self, out: Path) -> None:
        self.folder = out.with_name(f"{out.name}.parts")
        self._manifest = self.folder / "manifest.json"

    def begin(self, manifest: dict[str, Any], *, restart: bool = False) -> int:
        """Start, or go on with what an earlier run of the same manifest left; give the first row not yet scored."""
        if restart:
            self.remove()
        if not self._manifest.exists():
            if self.folder.exists() and any(self.folder.glob("[!.]*")):
                raise ValueError(f"{self.folder} is in the way and was not written by pnml score: move it")
            self.folder.mkdir(parents=True, exist_ok=True)
            with atomic_path(self._manifest) as partial:
                partial.write_text(json.dumps(manifest, indent=1), encoding="utf-8")
            return 0
        try:
            before = json.loads(self._manifest.read_text(encoding="utf-8"))
            changed = changes(before, manifest)
            stop = self._end()
        except (ValueError, TypeError) as error:
            raise ValueError(f"{self.folder} is damaged ({error}): start over with --restart") from error
        if changed:
            raise ValueError(f"{self.folder} holds the beginning of another run: {changed}")
        return stop

    def write(self, first: int, stop: int, part: Part) -> None:
        """Keep the scores of the input's rows from ``first`` to before ``stop``."""
        arrays = {**part.columns, "skipped": np.asarray(part.skipped, dtype=np.str_)}
        with atomic_path(self.folder / f"{first:012d}-{stop:012d}.npz") as partial, partial.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type] # its stubs take the columns for allow_pickle

    def __iter__(self) -> Iterator[Part]:
        """Yield the parts in order, one in memory at a time."""
        for file in self._files():
            try:
                with file.open("rb") as opened, np.load(opened, allow_pickle=False) as arrays:
                    columns = {name: arrays[name] for name in arrays.files}
            except (zipfile.BadZipFile, ValueError, EOFError) as error:
                raise ValueError(f"{file} is damaged ({error}): start over with --restart") from error
            yield Part(columns, columns.pop("skipped").tolist())

    def remove(self) -> None:
        """Remove the folder, if it is one of these: last parts first, so that a kill leaves a run that can go on."""
        if self._manifest.exists():
            for file in sorted(self.folder.iterdir(), reverse=True):
                if file != self._manifest:
                    file.unlink()
            shutil.rmtree(self.folder)

    def _files(self) -> list[Path]:
        return sorted(self.folder.glob("[0-9]*-[0-9]*.npz"))

    def _end(self) -> int:
        """The row up to which there are parts."""
        end = 0
        for file in self._files():
            first, stop = (int(row) for row in file.stem.split("-"))
            if first != end or not zipfile.is_zipfile(file):
                raise ValueError(f"the part from row {end} on is missing or not whole")
            end = stop
        return end
