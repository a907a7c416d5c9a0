"""A set of one's own samples of any kind, and what identifies it."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray
    from typing_extensions import Self


@dataclass(frozen=True, eq=False, repr=False)
class SampleSet(ABC):
    """Samples that are read in order, a batch at a time.

    Attributes:
        name: the name or path it was opened by.
        split: "train", "test" or "ood".
        labels: class numbers, (N,), int64, or None.
        note: what a reader of the results should know about it.
        digest: of the samples that were chosen and their labels; None for a published set.
    """

    what: ClassVar[str]
    name: str
    split: str
    labels: NDArray[np.int64] | None
    note: str
    digest: str | None

    @abstractmethod
    def __len__(self) -> int: ...

    def __repr__(self) -> str:
        return f"{self.name} ({len(self):,} {self.what})"

    @property
    def images(self) -> Any:
        """The pictures by number, to be shown in a report; None for samples of other kinds."""
        return None

    @abstractmethod
    def batches(self, batch_size: int) -> Iterator[Any]:
        """Yield what goes into the network, in order."""

    @abstractmethod
    def first(self, count: int) -> Self:
        """Return the set of the first ``count`` samples."""


def digest_samples(samples: Iterable[tuple[str, Any]], labels: NDArray[np.int64] | None) -> str:
    """Return a digest of samples, which are names and contents, and of their labels.

    >>> digest_samples([("a", b"1")], None) == digest_samples([("a", b"1")], np.array([0]))
    False
    """
    digest = hashlib.sha256()
    for name, content in samples:
        held = content.read_bytes() if isinstance(content, Path) else content
        held = held.encode() if isinstance(held, str) else held
        digest.update(f"{name}\0{len(held)}\0".encode(errors="surrogateescape"))
        digest.update(held)
    if labels is not None:
        digest.update(b"\0labels\0" + np.ascontiguousarray(labels, dtype="<i8").tobytes())
    return digest.hexdigest()


def limit_note(kept: int, count: int) -> str:
    """Return the note of a set of which some samples were left out.

    >>> limit_note(10, 10), limit_note(10, 2000)
    ('', 'limited to 10 of 2,000, evenly spaced')
    """
    return "" if kept == count else f"limited to {kept:,} of {count:,}, evenly spaced"


def as_labels(path: Path, column: str, values: Sequence[Any]) -> NDArray[np.int64]:
    """Return labels as integers; raise ``ValueError`` for a row whose label is none."""
    numbers = [_as_number(value) for value in values]
    if None in numbers:
        row = numbers.index(None)
        raise ValueError(
            f"{path} has {values[row]!r} as {column!r} in row {row}: expected the number of a class, from 0 on"
        )
    return np.asarray(numbers, dtype=np.int64)


def check_labels(path: str, labels: NDArray[np.int64] | None, classes: int) -> None:
    """Raise ``ValueError`` for labels that the network has no class for."""
    if labels is None or not len(labels):
        return
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= classes:
        raise ValueError(
            f"{path} has the label {low if low < 0 else high}, and the network has {classes} classes: expected labels "
            f"from 0 to {classes - 1}, in the order of its outputs"
        )


def _as_number(value: Any) -> int | None:
    """Return an integer as such, also out of text; None for what is no integer."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if isinstance(value, str) or number == value else None
