"""Any folder of pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from pnml.bench.data.gather import gather
from pnml.io.decode import resize_to
from pnml.io.images import SUFFIXES, image_files

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.bench.data.selection import Contents, Selection
    from pnml.io.decode import Fit


def read_folder(
    folder: Path,
    selection: Selection,
    *,
    fit: Fit | None = None,
    labelled: bool = False,
    strict: bool = False,
) -> Contents:
    """Read every picture below a folder.

    Args:
        folder: where the pictures are, at any depth.
        selection: which of them, resized to ``selection.size`` if it is given.
        fit: crops or resizes each picture, instead of ``selection.size``.
        labelled: number the classes by the sorted names of the folders directly in ``folder``.
        strict: raise on the first picture that does not decode, instead of leaving it out.
    """
    files = image_files(folder)
    if not files:
        raise ValueError(f"no pictures in {folder}: files ending in {', '.join(sorted(SUFFIXES))} are expected")
    chosen = [files[row] for row in selection.rows(len(files))]
    labels = _class_numbers(folder, files, chosen) if labelled else None
    if fit is None and selection.size is not None:
        fit = resize_to(selection.size)
    return gather(chosen, labels, len(files), fit=fit, strict=strict)


def _class_numbers(folder: Path, files: Sequence[Path], chosen: Sequence[Path]) -> NDArray[np.int64]:
    depth = len(folder.parts)
    loose = [file for file in files if len(file.parts) == depth + 1]
    if loose:
        raise ValueError(f"{loose[0]} lies in no class folder: {folder}/CLASS/... is expected")
    numbers = {name: number for number, name in enumerate(sorted({file.parts[depth] for file in files}))}
    return np.asarray([numbers[file.parts[depth]] for file in chosen], dtype=np.int64)
