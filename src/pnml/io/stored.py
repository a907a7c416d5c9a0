"""How the rows of a file are read, whatever its format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray


@dataclass(frozen=True)
class Stored:
    """Embeddings in a file.

    Attributes:
        count: the number N of rows.
        width: the number M of features.
        read: ``read(start, size)`` yields the rows from ``start`` on, ``size`` at a time (fewer only at the end), as
            pairs of ids (None where the file has none) and rows.
        starts: the rows from which reading can begin without reading what comes before; any row when empty.
    """

    count: int
    width: int
    read: Callable[[int, int], Iterator[tuple[NDArray[Any] | None, NDArray[Any]]]]
    starts: tuple[int, ...] = ()
