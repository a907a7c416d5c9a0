"""The ids of rows as text: bytes are read as UTF-8, and what is not is named."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def decode_ids(ids: Iterable[bytes], first: int = 0) -> list[str]:
    """Return ids that a file stores as bytes as text; raise ``ValueError`` for one that is not UTF-8.

    Args:
        ids: of consecutive rows.
        first: the number of the first of these rows.

    >>> decode_ids([b"a", "ä".encode()])
    ['a', 'ä']
    """
    return [_decode(value, row) for row, value in enumerate(ids, start=first)]


def _decode(value: bytes, row: int) -> str:
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise ValueError(
            f"row {row}, counted from 0, has the id {value!r}, which is not UTF-8: store ids as text, as with "
            f"id.hex(), here {value.hex()!r}"
        ) from None
