"""Encoded images, made byte by byte, of kinds that Pillow does not write."""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n"


def black_png(width: int, height: int) -> bytes:
    """Return a black PNG of 1 bit a pixel: a thousandth of a byte each."""
    rows, compressor = bytes(1 + (width + 7) // 8), zlib.compressobj(9)
    data = b"".join(compressor.compress(rows * 100) for _ in range(height // 100))
    data += compressor.compress(rows * (height % 100)) + compressor.flush()
    header = struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + _chunk(b"IHDR", header) + _chunk(b"IDAT", data) + _chunk(b"IEND", b"")


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def tiff(values: NDArray[Any], *, bits: int = 0, photometric: int = 1, content: bytes | None = None) -> bytes:
    """Return an uncompressed grey TIFF of the values (H, W), in their own byte order.

    Args:
        values: integers or floats of any size.
        bits: of a value, if they are not those of the dtype.
        photometric: 1 if 0 is black, 0 if it is white.
        content: stored instead of the values.
    """
    order = ">" if values.dtype.str[0] == ">" else "<"
    content = values.tobytes() if content is None else content
    sample_format = {"u": 1, "i": 2, "f": 3}[values.dtype.kind]
    height, width = values.shape
    tags = {
        256: width,
        257: height,
        258: bits or 8 * values.dtype.itemsize,
        259: 1,  # uncompressed
        262: photometric,
        273: 8,  # where the values begin
        277: 1,  # one value a pixel
        278: height,
        279: len(content),
        339: sample_format,
    }
    entries = b"".join(struct.pack(order + "HHII", tag, 4, 1, value) for tag, value in tags.items())
    magic = (b"MM" if order == ">" else b"II") + struct.pack(order + "H", 42)
    directory = struct.pack(order + "H", len(tags)) + entries + bytes(4)
    return magic + struct.pack(order + "I", 8 + len(content)) + content + directory


def pack_12_bits(values: NDArray[np.uint16]) -> bytes:
    """Return pairs of values as three bytes each, the upper bits first."""
    pairs = values.reshape(-1, 2)
    return b"".join(((int(a) << 12) | int(b)).to_bytes(3, "big") for a, b in pairs)
