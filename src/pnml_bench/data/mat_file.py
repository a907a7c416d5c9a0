"""Read arrays of numbers from .mat files of MATLAB 5 to 7.2, as SVHN is published.

Every length in the file is compared with what is there before it is used, so a forged file is refused.
"""

from __future__ import annotations

import math
import struct
import zlib
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

MAX_BYTES = 1 << 28  # of a file, and twice as many when it is decompressed: SVHN has 182 MB and 225 MB

_HEADER = 128
_BYTE_ORDERS = {b"IM": "<", b"MI": ">"}
_MATRIX, _COMPRESSED = 14, 15
_NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
_NUMERIC_CLASSES = range(6, 16)
_COMPLEX = 0x800
_MAX_ELEMENTS, _MAX_DIMENSIONS = 100, 8


def read_mat(content: bytes) -> dict[str, NDArray[Any]]:
    """Return the real arrays of numbers in a .mat file by name; anything else in it is left out.

    Raises:
        ValueError: the content is no whole .mat file of this kind, or too large.
    """
    order = _BYTE_ORDERS.get(content[_HEADER - 2 : _HEADER])
    if order is None:
        raise ValueError("it has no header of MATLAB 5 to 7.2")
    arrays: dict[str, NDArray[Any]] = {}
    room = 2 * MAX_BYTES
    for number, (kind, data) in enumerate(_elements(memoryview(content)[_HEADER:], order)):
        if number == _MAX_ELEMENTS:
            raise ValueError(f"it has more than {_MAX_ELEMENTS} variables")
        if kind == _COMPRESSED:
            unpacked = _decompress(data, room)
            room -= len(unpacked)
            kind, data = next(_elements(unpacked, order), (0, unpacked))  # noqa: PLW2901
        if kind == _MATRIX:
            arrays |= _array(data, order)
    return arrays


def _elements(content: memoryview, order: str) -> Iterator[tuple[int, memoryview]]:
    """Yield the kind and the data of every element: a tag of 8 bytes, or of 4 with up to 4 bytes of data after it."""
    while content:
        kind, size = struct.unpack(f"{order}II", _take(content, 0, 8))
        if kind >> 16:
            kind, size, start, stop = kind & 0xFFFF, kind >> 16, 4, 8
            if size > 4:
                raise ValueError("an element of 4 bytes has more")
        else:
            start, stop = 8, 8 + size if kind == _COMPRESSED else 8 + -(-size // 8) * 8
        yield kind, _take(content, start, size)
        content = content[stop:]


def _take(content: memoryview, start: int, size: int) -> memoryview:
    if len(content) < start + size:
        raise ValueError("it ends too early")
    return content[start : start + size]


def _decompress(data: memoryview, room: int) -> memoryview:
    decompressor = zlib.decompressobj()
    try:
        content = decompressor.decompress(data, room)
    except zlib.error as error:
        raise ValueError(f"it does not decompress: {error}") from error
    if not decompressor.eof:
        raise ValueError("it ends too early" if len(content) < room else f"it has more than {2 * MAX_BYTES:,} bytes")
    return memoryview(content)


def _array(data: memoryview, order: str) -> dict[str, NDArray[Any]]:
    """Return the name and the values of a variable; nothing if it is no real array of numbers."""
    parts = list(islice(_elements(data, order), 4))
    if len(parts) < 4:
        return {}
    (_, flags), (_, dimensions), (_, name), (kind, values) = parts
    (flag,) = struct.unpack(f"{order}I", _take(flags, 0, 4))
    if flag & 0xFF not in _NUMERIC_CLASSES or flag & _COMPLEX or kind not in _NUMBERS:
        return {}
    if len(dimensions) % 4 or len(dimensions) > 4 * _MAX_DIMENSIONS:
        raise ValueError("the dimensions of a variable are damaged")
    shape = struct.unpack(f"{order}{len(dimensions) // 4}i", dimensions)
    dtype = np.dtype(order + _NUMBERS[kind])
    if min(shape, default=-1) < 0 or math.prod(shape) * dtype.itemsize != len(values):
        raise ValueError(f"a variable of shape {shape} has {len(values)} bytes")
    return {bytes(name[:64]).decode("latin-1"): np.frombuffer(values, dtype).reshape(shape, order="F")}
