"""Columns of text as arrays of Python strings, where NumPy's own text takes for every row what the longest takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from numpy.typing import NDArray


def as_texts(values: Iterable[Any]) -> NDArray[Any]:
    """Return an array of strings, shape (n,).

    >>> as_texts(["a", "bcd"])
    array(['a', 'bcd'], dtype=object)
    """
    held = [str(value) for value in values]
    texts = np.empty(len(held), dtype=object)
    texts[:] = held
    return texts


def text_lengths(values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the number of characters of every text; 0 for numbers.

    >>> text_lengths(as_texts(["a", "bcd"])), text_lengths(np.arange(2))
    (array([1, 3]), array([0, 0]))
    """
    if values.dtype != object:
        return np.zeros(len(values), dtype=np.int64)
    return np.fromiter(map(len, values), np.int64, len(values))


def join_texts(texts: NDArray[Any]) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Return the bytes of all texts in a row, and how many each has.

    >>> content, lengths = join_texts(as_texts(["a", "bcd"]))
    >>> content.tobytes(), lengths.tolist()
    (b'abcd', [1, 3])
    """
    encoded = [text.encode(errors="surrogateescape") for text in texts]
    return np.frombuffer(b"".join(encoded), np.uint8), np.array([len(text) for text in encoded], dtype=np.int64)


def split_texts(content: NDArray[np.uint8], lengths: NDArray[np.int64]) -> NDArray[Any]:
    """Return the texts that :func:`join_texts` joined."""
    held, stops = content.tobytes(), np.cumsum(lengths).tolist()
    return as_texts(
        held[start:stop].decode(errors="surrogateescape") for start, stop in zip([0, *stops], stops, strict=False)
    )


def read_class_names(path: Path) -> list[str]:
    """Return the lines of a text file, the names of classes 0, 1, ..."""
    try:
        return path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is no text file in UTF-8: expected class names, one a line") from error
