"""TinyImageNet crop and resize, made from the test pictures of tiny-imagenet-200."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pnml.bench.data.folder import read_folder

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.bench.data.selection import Contents, Selection

_SIDE = 32


def read_crop(folder: Path, selection: Selection) -> Contents:
    """Crop 32×32 pixels at a random, seeded position of each 64×64 picture; ODIN's authors drew theirs likewise."""
    published = replace(selection, size=None)
    contents = read_folder(folder / "test", published, strict=True)
    images = np.asarray(contents.images)
    room = [side - _SIDE + 1 for side in images.shape[1:3]]
    draw = np.random.default_rng(selection.seed)
    corners = draw.integers(0, room, size=(contents.total, 2))[selection.rows(contents.total)]
    windows = np.lib.stride_tricks.sliding_window_view(images, (_SIDE, _SIDE), axis=(1, 2))
    crops = windows[np.arange(len(images)), corners[:, 0], corners[:, 1]]  # (N, 3, 32, 32)
    note = f"cropped anew from tiny-imagenet-200 (seed {selection.seed}), not the crops of the 2017 archive"
    return contents._replace(images=np.ascontiguousarray(crops.transpose(0, 2, 3, 1)), note=note)


def read_resize(folder: Path, selection: Selection) -> Contents:
    """Resize each picture to 32×32 pixels, with antialiasing."""
    contents = read_folder(folder / "test", replace(selection, size=_SIDE), strict=True)
    note = (
        "resized with antialiasing from tiny-imagenet-200: much harder to detect than the 2017 archive, "
        "whose aliasing gives it away"
    )
    return contents._replace(note=note)
