"""Read folders of image files, any and those that are published as one, and parquet files with a column of images."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from pnml.io.images import bytes_of, image_columns, some_image_files
from pnml.io.parquet_files import open_parquet
from pnml_bench.data.lazy_images import centre_crop_to, sample_to
from pnml_bench.data.selection import decode_contents

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.io.decode import Transform
    from pnml_bench.data.selection import Contents, Selection


IMAGENET30_FOLDERS = {"train": ("one_class_train",), "test": ("one_class_test",)}

_CROP_SIDE = 32
_IMAGENET30_SIDE = 254  # as in the paper


def read_folder(
    folder: Path,
    selection: Selection,
    *,
    transform: Transform | None = None,
    labelled: bool = False,
    strict: bool = False,
) -> Contents:
    """Read the image files below a folder.

    Args:
        folder: contains images at any depth.
        selection: which images, resized to ``selection.size`` unless there is a ``transform``.
        transform: crops or resizes each image.
        labelled: whether the folders directly in ``folder`` are classes, numbered in order of their names.
        strict: raise on the first image that does not decode instead of skipping it.
    """
    files = some_image_files(folder)
    selected = [files[row] for row in selection.rows(len(files))]
    labels = _class_numbers(folder, files, selected) if labelled else None
    return decode_contents(selected, labels, len(files), size=selection.size, transform=transform, strict=strict)


def read_odin(folder: Path, selection: Selection) -> Contents:
    """Read an archive published with ODIN in 2017. Its crops have 36×36 pixels; the paper uses the central 32×32."""
    return read_folder(folder, selection, transform=centre_crop_to(_CROP_SIDE))


def read_imagenet30(folder: Path, selection: Selection) -> Contents:
    """Read ImageNet-30 (Hendrycks et al., 2019), resized to 254×254 pixels unless ``selection`` has a size."""
    (part,) = IMAGENET30_FOLDERS[selection.split]
    return read_folder(folder / part, replace(selection, size=selection.size or _IMAGENET30_SIDE), labelled=True)


def read_tinyimagenet_crops(folder: Path, selection: Selection) -> Contents:
    """Crop 32×32 pixels at a random, seeded position of each test image, as ODIN's authors did."""
    contents = read_folder(folder / "test", replace(selection, size=None), strict=True)
    images = np.asarray(contents.images)
    positions = [side - _CROP_SIDE + 1 for side in images.shape[1:3]]
    rng = np.random.default_rng(selection.seed)
    corners = rng.integers(0, positions, size=(contents.total, 2))[selection.rows(contents.total)]
    windows = np.lib.stride_tricks.sliding_window_view(images, (_CROP_SIDE, _CROP_SIDE), axis=(1, 2))
    crops = windows[np.arange(len(images)), corners[:, 0], corners[:, 1]]  # (N, 3, 32, 32)
    note = f"cropped from tiny-imagenet-200 with seed {selection.seed}, not the crops of the 2017 archive"
    return contents._replace(images=np.ascontiguousarray(crops.transpose(0, 2, 3, 1)), note=note)


def read_tinyimagenet_resized(folder: Path, selection: Selection) -> Contents:
    """Resize each test image to 32×32 pixels, with antialiasing."""
    contents = read_folder(folder / "test", replace(selection, size=_CROP_SIDE), strict=True)
    note = (
        "resized with antialiasing from tiny-imagenet-200: much harder to detect than the 2017 archive, "
        "which shows aliasing artefacts"
    )
    return contents._replace(note=note)


def read_tinyimagenet_sampled(folder: Path, selection: Selection) -> Contents:
    """Take every second pixel of each test image, down and right: 32×32 pixels that alias, as in the 2017 archive."""
    contents = read_folder(folder / "test", selection, transform=sample_to(_CROP_SIDE), strict=True)
    return contents._replace(note="re-made from tiny-imagenet-200 by nearest-neighbour sampling, not the 2017 archive")


def _class_numbers(folder: Path, files: Sequence[Path], selected: Sequence[Path]) -> NDArray[np.int64]:
    depth = len(folder.parts)
    unclassed = [file for file in files if len(file.parts) == depth + 1]
    if unclassed:
        raise ValueError(f"{unclassed[0]} is in no class folder: expected {folder}/CLASS/...")
    numbers = {name: number for number, name in enumerate(sorted({file.parts[depth] for file in files}))}
    return np.asarray([numbers[file.parts[depth]] for file in selected], dtype=np.int64)


def read_parquet(path: Path, selection: Selection) -> Contents:
    """Read the images of a parquet file, and its labels if every row has one.

    The images are the first column of bytes, or of structs with a field ``bytes`` as Hugging Face stores them. The
    labels are the first column of integers with "label" in its name. Rows are streamed: only the selected ones are
    kept.
    """
    table = open_parquet(path)
    image_column, label_column = image_columns(path, table.schema)
    columns = [name for name in (image_column, label_column) if name is not None]
    held = table.take(columns, selection.rows(table.count))
    labels = None if label_column is None else held[label_column]
    if labels is not None and None in labels:
        labels = None
    return decode_contents(
        [bytes_of(value) for value in held[image_column]],
        None if labels is None else np.asarray(labels, dtype=np.int64),
        table.count,
        size=selection.size,
    )
