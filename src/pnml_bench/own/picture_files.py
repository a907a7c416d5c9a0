"""Pictures of a folder, a parquet file or a published set, before they are prepared for a network."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.io.images import bytes_of, image_columns, some_image_files
from pnml.io.parquet_files import open_parquet
from pnml_bench.data import SETS, load
from pnml_bench.own.samples import as_labels, digest_samples, limit_note

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from pnml_bench.data.selection import Selection


@dataclass(frozen=True)
class PictureFiles:
    """Encoded pictures, or arrays of pixels, and what is known about them.

    Attributes:
        items: paths, contents of files, or uint8 arrays (H, W, 3), one a picture.
        labels: class numbers, (N,), or None.
        class_names: the folders of the classes in the order of their numbers; None where there are none.
        note: how it differs from the whole set.
        digest: of pictures and labels; None for a published set.
    """

    items: Any
    labels: NDArray[np.int64] | None
    class_names: tuple[str, ...] | None
    note: str
    digest: str | None


def open_pictures(name: str, selection: Selection, class_names: tuple[str, ...] | None = None) -> PictureFiles:
    """Open a published set by name, or the pictures of a folder or of a parquet file by path.

    Args:
        name: a name in ``pnml_bench.data.SETS``, or a path.
        selection: which pictures.
        class_names: the class folders of the training set, whose numbers other sets share.
    """
    if name in SETS:
        split = "train" if selection.split == "train" else "test"
        published = load(name, split=split, limit=selection.limit, seed=selection.seed)
        return PictureFiles(published.images, published.labels, None, published.note, None)
    path = Path(name)
    if path.is_dir():
        return _open_folder(path, selection, class_names)
    if path.is_file() and path.suffix.lower() == ".parquet":
        return _open_parquet(path, selection)
    if path.exists():
        texts = ": of texts, name their column, --column text" if path.suffix == ".csv" else ""
        raise ValueError(f"{path} is neither a folder of pictures nor a .parquet file{texts}")
    raise FileNotFoundError(
        f"there is no {name!r}: expected a folder of pictures, a .parquet file, or one of {', '.join(SETS)}"
    )


def _open_folder(folder: Path, selection: Selection, class_names: tuple[str, ...] | None) -> PictureFiles:
    files = some_image_files(folder)
    chosen = [files[row] for row in selection.rows(len(files))]
    labels = None
    if selection.split != "ood":
        class_names = class_names or _class_names(folder, files)
        labels = _class_numbers(folder, files, chosen, class_names)
    named = ((file.relative_to(folder).as_posix(), file) for file in chosen)
    return PictureFiles(chosen, labels, class_names, limit_note(len(chosen), len(files)), digest_samples(named, labels))


def _class_names(folder: Path, files: Sequence[Path]) -> tuple[str, ...] | None:
    """Return the folders directly in ``folder``, sorted; None where all pictures lie in it themselves."""
    loose = [file for file in files if file.parent == folder]
    if len(loose) == len(files):
        return None
    if loose:
        raise ValueError(f"{loose[0]} is in no class folder, and others are: expected {folder}/CLASS/... for all")
    return tuple(sorted({_class_of(folder, file) for file in files}))


def _class_numbers(
    folder: Path, files: Sequence[Path], chosen: Sequence[Path], class_names: tuple[str, ...] | None
) -> NDArray[np.int64] | None:
    if class_names is None:
        return None
    own = _class_names(folder, files)
    if own is None:
        some = ", ".join(class_names[:5])
        raise ValueError(f"{folder} has no class folders, and the training set has {some}, ...: sort it alike")
    if unknown := sorted(set(own) - set(class_names)):
        raise ValueError(
            f"{folder} has the class folder {unknown[0]!r}, which the training set has not: it has "
            f"{', '.join(class_names[:10])}{', ...' if len(class_names) > 10 else ''}"
        )
    numbers = {name: number for number, name in enumerate(class_names)}
    return np.asarray([numbers[_class_of(folder, file)] for file in chosen], dtype=np.int64)


def _class_of(folder: Path, file: Path) -> str:
    return file.relative_to(folder).parts[0]


def _open_parquet(path: Path, selection: Selection) -> PictureFiles:
    table = open_parquet(path)
    column, label_column = image_columns(path, table.schema)
    columns = [column] if label_column is None or selection.split == "ood" else [column, label_column]
    held = table.take(columns, selection.rows(table.count))
    items, found = [bytes_of(value) for value in held[column]], None
    if not items:
        raise ValueError(f"{path} is empty: no pictures to read")
    if len(columns) > 1:
        found = as_labels(path, columns[1], held[columns[1]])
    named = ((str(number), item) for number, item in enumerate(items))
    return PictureFiles(items, found, None, limit_note(len(items), table.count), digest_samples(named, found))
