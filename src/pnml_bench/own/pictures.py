"""Pictures of one's own, of a folder, a parquet file or a published set, prepared as ``pnml fit`` prepares them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pnml.io.decode import read_image
from pnml.io.images import bytes_of, image_columns, some_image_files
from pnml.io.parquet_files import open_parquet
from pnml_bench.data import SETS, load
from pnml_bench.data.selection import Selection
from pnml_bench.own.samples import SampleSet, as_labels, digest_samples, limit_note

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from numpy.typing import NDArray

    from pnml.io.preparation import Preparation


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


@dataclass(frozen=True, eq=False, repr=False)
class Pictures(SampleSet):
    """Pictures that are decoded and prepared whenever they are read.

    Attributes:
        items: paths, contents of files, or arrays of pixels.
        preparation: the processing of each.
        shape: the height and width that each must have then; None for any.
        class_names: the folders of the classes in the order of their numbers; None where there are none.
    """

    what: ClassVar[str] = "pictures"
    items: Any
    preparation: Preparation
    shape: tuple[int, int] | None
    class_names: tuple[str, ...] | None

    def __len__(self) -> int:
        return len(self.items)

    @property
    def images(self) -> Pictures:
        """The pictures by number, as they are before the preparation."""
        return self

    def __getitem__(self, row: int) -> NDArray[np.uint8]:
        return _pixels(self.items[row])

    def batches(self, batch_size: int) -> Iterator[torch.Tensor]:
        """Yield prepared pictures, (n, C, H, W)."""
        for start in range(0, len(self), batch_size):
            with _naming(self.name):
                images = self.preparation.decode(list(self.items[start : start + batch_size]), strict=True)
                prepared = [image for image in images if image is not None]
                self._check_shapes(prepared)
                batch = self.preparation.batch(prepared)
            yield batch

    def first(self, count: int) -> Pictures:
        """Return the set of the first ``count`` pictures."""
        return replace(self, items=self.items[:count], labels=None if self.labels is None else self.labels[:count])

    def _check_shapes(self, images: list[torch.Tensor]) -> None:
        for image in images:
            height, width = image.shape[-2:]
            if self.shape is not None and self.shape != (height, width):
                raise ValueError(
                    f"expected pictures of one size, got one of {height}×{width} pixels (height × width), the first "
                    f"of the training set has {self.shape[0]}×{self.shape[1]}: give --size, as --size {max(self.shape)}"
                )


class PictureSource:
    """Opens the sets of a benchmark on pictures.

    Args:
        preparation: of every picture. Without a size and a transform, training and test pictures have to be of one
            size, and those of other sets are resized to it if it is a square.
        limit: take at most this many pictures of every set.
    """

    def __init__(self, preparation: Preparation, limit: int | None) -> None:
        self.preparation = preparation
        self.limit = limit
        self._class_names: tuple[str, ...] | None = None
        self._shape: tuple[int, int] | None = None

    def open(self, name: str, split: str, seed: int = 0) -> Pictures:
        """Open a set; the training set, which comes first, decides on the classes' numbers and the pictures' size."""
        files = open_pictures(name, Selection(split, self.limit, seed), self._class_names)
        preparation = self.preparation
        if split == "train":
            self._class_names = files.class_names
            if preparation.size is None and preparation.transform is None:
                height, width = _pixels(files.items[0]).shape[:2]
                self._shape = height, width
        if split == "ood" and self._shape is not None and self._shape[0] == self._shape[1]:
            preparation = replace(preparation, size=self._shape[0])
        return Pictures(
            name,
            split,
            files.labels,
            files.note,
            files.digest,
            items=files.items,
            preparation=preparation,
            shape=self._shape,
            class_names=files.class_names,
        )

    def record(self) -> dict[str, Any]:
        """Return what identifies the preparation, with the size of the training pictures where nothing resizes them."""
        shape = {} if self._shape is None else {"shape": list(self._shape)}
        return {**self.preparation.record(), **shape}


@contextmanager
def _naming(name: str) -> Iterator[None]:
    """Name the set where a picture of it cannot be prepared."""
    try:
        yield
    except (MemoryError, OSError):
        raise
    except ValueError as error:
        raise ValueError(f"{name}: {error}") from error
    except Exception as error:  # of a transform, which is one's own
        raise ValueError(f"{name}: the transform failed with {type(error).__name__}: {error}") from error


def _pixels(item: Any) -> NDArray[np.uint8]:
    return item if hasattr(item, "dtype") else read_image(item)
