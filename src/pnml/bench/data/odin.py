"""The archives that came with ODIN in 2017: TinyImageNet and LSUN, each cropped and resized, and iSUN."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml.bench.data.folder import read_folder
from pnml.io.decode import centre_crop_to

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.bench.data.selection import Contents, Selection


def read_archive(folder: Path, selection: Selection) -> Contents:
    """Read an unpacked archive. Its cropped pictures have 36×36 pixels, of which the paper takes the middle 32×32."""
    return read_folder(folder, selection, fit=centre_crop_to(32))
