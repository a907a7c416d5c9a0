"""ImageNet-30 (Hendrycks et al., 2019): thirty ImageNet classes in class folders."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from pnml.bench.data.folder import read_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.bench.data.selection import Contents, Selection

FOLDERS = {"train": ("one_class_train",), "test": ("one_class_test",)}
_SIDE = 254  # the paper's size


def read_imagenet30(folder: Path, selection: Selection) -> Contents:
    """Read ``one_class_train`` or ``one_class_test``, resized to 254×254 pixels unless the selection says otherwise."""
    (part,) = FOLDERS[selection.split]
    return read_folder(folder / part, replace(selection, size=selection.size or _SIDE), labelled=True)
