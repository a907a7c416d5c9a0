"""Pictures of one's own, prepared for one's own network as ``pnml fit`` prepares them."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pnml.io.decode import read_image
from pnml_bench.data.selection import Selection
from pnml_bench.own.picture_files import open_pictures
from pnml_bench.own.samples import SampleSet

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy as np
    import torch
    from numpy.typing import NDArray

    from pnml.io.preparation import Preparation


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

    def train(self, name: str) -> Pictures:
        """Open the training set, which decides on the numbers of classes and the size of pictures."""
        found = self._open(name, "train")
        self._class_names = found.class_names
        if self.preparation.size is None and self.preparation.transform is None:
            height, width = found[0].shape[:2]
            self._shape = height, width
        return replace(found, shape=self._shape)

    def test(self, name: str) -> Pictures:
        """Open the in-distribution test set."""
        return replace(self._open(name, "test"), shape=self._shape)

    def ood(self, name: str, seed: int) -> Pictures:
        """Open an OOD set, in the size of the training set."""
        found = replace(self._open(name, "ood", seed), shape=self._shape)
        if self._shape is not None and self._shape[0] == self._shape[1]:
            return replace(found, preparation=replace(self.preparation, size=self._shape[0]))
        return found

    def record(self) -> dict[str, Any]:
        """Return what identifies the preparation, with the size of the training pictures where nothing resizes them."""
        shape = {} if self._shape is None else {"shape": list(self._shape)}
        return {**self.preparation.record(), **shape}

    def _open(self, name: str, split: str, seed: int = 0) -> Pictures:
        files = open_pictures(name, Selection(split, self.limit, seed), self._class_names)
        return Pictures(
            name,
            split,
            files.labels,
            files.note,
            files.digest,
            items=files.items,
            preparation=self.preparation,
            shape=None,
            class_names=files.class_names,
        )


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
