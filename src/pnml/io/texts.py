"""Columns of text as arrays of Python strings, where NumPy's own text takes for every row what the longest takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray


def as_texts(values: Iterable[Any]) -> NDArray[Any]:
    """Return an array of strings, shape (n,)."""
    strings = [str(value) for value in values]
    texts = np.empty(len(strings), dtype=object)
    texts[:] = strings
    return texts


def decode_ids(ids: Iterable[bytes], first: int = 0) -> NDArray[Any]:
    """Return ids that a file stores as bytes as text; raise ``ValueError`` for one that is not UTF-8.

    They are of consecutive rows, from number ``first`` on.
    """
    texts: list[str] = []
    try:
        for value in ids:
            texts.append(value.decode())  # noqa: PERF401 - their number is that of the row
    except UnicodeDecodeError as error:
        raise ValueError(
            f"row {first + len(texts)}, counted from 0, has the id {error.object!r}, which is not UTF-8: store ids as "
            f"text, as with id.hex(), here {error.object.hex()!r}"
        ) from None
    return as_texts(texts)


def count_characters(values: NDArray[Any]) -> int:
    """Return the number of characters of all texts; 0 for numbers."""
    return sum(map(len, values)) if values.dtype == object else 0


def read_class_names(path: Path) -> list[str]:
    """Return the lines of a text file, the names of classes 0, 1, ..."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text file in UTF-8: expected class names, one a line") from error
