"""Hostile content for every format that pnml reads: damaged bytes, and whole files of odd structure."""

from __future__ import annotations

import io
import json
import struct
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    Random = np.random.Generator
    Mutation = Callable[[Random, bytes], bytes]


def flip_bits(rng: Random, content: bytes) -> bytes:
    changed = bytearray(content)
    for place in rng.integers(0, max(1, len(content)), size=rng.integers(1, 9)):
        if changed:
            changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed)


def flip_near_an_end(rng: Random, content: bytes) -> bytes:
    """Change bytes of a header or a footer, where formats keep their structure."""
    size = min(len(content), 400)
    if rng.random() < 0.5:
        return flip_bits(rng, content[:size]) + content[size:]
    return content[: len(content) - size] + flip_bits(rng, content[len(content) - size :])


def truncate(rng: Random, content: bytes) -> bytes:
    return content[: int(rng.integers(0, len(content) + 1))]


def extend(rng: Random, content: bytes) -> bytes:
    return content + rng.bytes(int(rng.integers(1, 300)))


def delete_slice(rng: Random, content: bytes) -> bytes:
    start, stop = sorted(rng.integers(0, len(content) + 1, size=2))
    return content[:start] + content[min(stop, start + 64) :]


def double_slice(rng: Random, content: bytes) -> bytes:
    start, stop = sorted(rng.integers(0, len(content) + 1, size=2))
    return content[:stop] + content[start:]


def overwrite(rng: Random, content: bytes) -> bytes:
    """Put the largest, the smallest or random bytes where a length or an offset may stand."""
    place, size = int(rng.integers(0, len(content) + 1)), int(rng.choice([1, 2, 4, 8, 64]))
    new = [b"\xff" * size, bytes(size), rng.bytes(size), b"\x7f" + b"\xff" * (size - 1)][int(rng.integers(4))]
    return content[:place] + new + content[place + size :]


def odd_text(rng: Random, content: bytes) -> bytes:
    """Replace a cell or a line by something odd."""
    words = [b"", b"nan", b"1e999", b"-1e400", b'"', b'""', b"\0", b"\xff\xfe", b"\xef\xbb\xbf", b"x" * 200_000, b"\r"]
    words += [b"0x1p3", b"1_0", "١٢".encode(), b"=1+1", b"<script>", b",,,,", b"\n\n", b"1" * 400, b"id", b"inf"]
    separator = b"\n" if rng.random() < 0.2 else b","
    cells = content.split(separator)
    for place in rng.integers(0, len(cells), size=rng.integers(1, 4)):
        cells[place] = words[int(rng.integers(len(words)))]
    return separator.join(cells)


def odd_json(rng: Random, content: bytes) -> bytes:
    """Replace a value of a JSON document, or of one line of many, by something odd."""
    lines = content.decode("utf-8", "replace").split("\n")
    place = int(rng.integers(len(lines)))
    try:
        whole = json.loads(content)
    except ValueError:
        try:
            lines[place] = json.dumps(_changed(rng, json.loads(lines[place])))
        except ValueError:
            lines[place] = _DEEP
        return "\n".join(lines).encode()
    return json.dumps(_changed(rng, whole)).encode()


_DEEP = "[" * 100_000
_VALUES: list[Any] = [None, True, -1, 0, 1.5, 1e308, 10**30, -(2**63), "", "x" * 5000, [], {}, [[[]]], "NaN", {"a": {}}]


def _changed(rng: Random, value: Any) -> Any:  # noqa: PLR0911
    """Return a value in which one part, at any depth, is another, missing or added."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = list(value)[int(rng.integers(len(value)))]
        kind = rng.random()
        if kind < 0.15:
            return {name: one for name, one in value.items() if name != key}
        if kind < 0.25:
            return {**value, f"{key}2": value[key]}
        return {**value, key: _changed(rng, value[key])}
    if isinstance(value, list) and value and rng.random() < 0.8:
        place = int(rng.integers(len(value)))
        if rng.random() < 0.2:
            return value[:place]
        return [*value[:place], _changed(rng, value[place]), *value[place + 1 :]]
    if isinstance(value, str) and value.startswith(("{", "[")) and rng.random() < 0.9:  # JSON in JSON
        return json.dumps(_changed(rng, json.loads(value)))
    return _VALUES[int(rng.integers(len(_VALUES)))]


def odd_safetensors(rng: Random, content: bytes) -> bytes:
    """Change the header of a safetensors file: names, types, shapes, places, metadata."""
    (size,) = struct.unpack("<Q", content[:8])
    if rng.random() < 0.05:
        header = _DEEP.encode()
    else:
        header = json.dumps(_changed(rng, json.loads(content[8 : 8 + size]))).encode()
    return struct.pack("<Q", len(header)) + header + content[8 + size :]


def odd_array(rng: Random) -> np.ndarray[Any, Any]:
    """Return an array of an odd type or shape."""
    shape = [(30, 8), (30,), (), (0, 8), (30, 0), (30, 2, 4), (1, 8), (30, 1)]
    values = rng.normal(size=shape[int(rng.integers(len(shape)))])
    kinds: list[Any] = ["f2", "f4", ">f8", "g", "c16", "U7", "S5", "M8[s]", "m8[D]", "?", "i1", "u8", "O", "V4", "F"]
    kind = kinds[int(rng.integers(len(kinds)))]
    if kind == "F":
        return np.asfortranarray(values)
    if kind == "V4":
        return np.zeros(values.shape, dtype=[("a", "f4"), ("b", "i2")])
    if kind in {"M8[s]", "m8[D]"}:
        return values.astype("i8").astype(kind)
    if rng.random() < 0.2 and values.size:
        values.flat[0] = [np.nan, np.inf, 1e308, 5e-324][int(rng.integers(4))]
    with np.errstate(all="ignore"):
        return values.astype(kind)


def odd_npy(rng: Random, content: bytes) -> bytes:
    """Change the text of the header, or return another array."""
    if rng.random() < 0.5:
        file = io.BytesIO()
        np.save(file, odd_array(rng), allow_pickle=True)
        return file.getvalue()
    old = [b"'<f4'", b"False", b"(30, 8)", b"'descr'", b"30"]
    new = [b"'<f9'", b"'|O'", b"True", b"(10**9, 8)", b"(3" + b"0" * 12 + b", 8)", b"(-1, 8)", b"((30, 8))", b"None"]
    text = content.replace(old[int(rng.integers(len(old)))], new[int(rng.integers(len(new)))], 1)
    (size,) = struct.unpack("<H", content[8:10])
    data = content[10 + size :]
    header = text[10 : len(text) - len(data)]
    return content[:8] + struct.pack("<H", len(header)) + header + data


def odd_npz(rng: Random, content: bytes) -> bytes:
    """Write an archive of odd members, or mark one as encrypted."""
    if rng.random() < 0.15:  # the flag stands in the local header and in the directory
        place = content.find(b"PK\x01\x02", int(rng.integers(len(content) // 2)))
        return content[: place + 8] + b"\x01" + content[place + 9 :] if place >= 0 else content
    file = io.BytesIO()
    methods = [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]
    names = [
        "embedding.npy",
        "id.npy",
        "features.a.npy",
        "weight.npy",
        "bias.npy",
        "embedding",
        "../x.npy",
        "readme.txt",
    ]
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(file, "w", methods[int(rng.integers(4))]) as new:
        for name in old.namelist():
            if rng.random() < 0.7:
                new.writestr(name, old.read(name) if rng.random() < 0.7 else odd_npy(rng, old.read(name)))
        for name in rng.choice(names, size=rng.integers(0, 3), replace=False):
            if name not in new.namelist():
                made = io.BytesIO()
                np.save(made, odd_array(rng), allow_pickle=True)
                new.writestr(str(name), made.getvalue())
    return file.getvalue()


def odd_parquet(rng: Random, content: bytes) -> bytes:  # noqa: ARG001
    """Return a table of odd columns."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    rows = int(rng.choice([0, 1, 30]))
    numbers = rng.normal(size=rows).tolist()
    lists = [list(rng.normal(size=8)) for _ in range(rows)]
    columns: list[Any] = [
        pa.array(lists, pa.list_(pa.float64())),
        pa.array(lists, pa.large_list(pa.float32())),
        pa.array(lists, pa.list_(pa.float64(), 8)),
        pa.array([[str(x) for x in one] for one in lists], pa.list_(pa.string())),
        pa.array([[one] for one in lists], pa.list_(pa.list_(pa.float64()))),
        pa.array([one[: int(rng.integers(9))] for one in lists], pa.list_(pa.float64())),
        pa.array([None if rng.random() < 0.2 else one for one in lists], pa.list_(pa.float64())),
        pa.array([[None, *one[1:]] for one in lists], pa.list_(pa.float64())),
        pa.array([None] * rows, pa.null()),
        pa.array([None] * rows, pa.list_(pa.float64())),
        pa.array(numbers),
        pa.array(np.asarray(numbers, np.float16)),
        pa.array([str(x) for x in numbers]),
        pa.array([str(x) for x in numbers]).dictionary_encode(),
        pa.array([b"\xff\xfe"] * rows),
        pa.array([2**64 - 1] * rows, pa.uint64()),
        pa.array([{"bytes": b"x", "a": 1.0}] * rows, pa.struct([("bytes", pa.binary()), ("a", pa.float64())])),
        pa.array([1] * rows, pa.timestamp("ns")),
        pa.array([True] * rows),
        pa.array([[("k", 1.0)]] * rows, pa.map_(pa.string(), pa.float64())),
        pa.array(["x" * 100_000] * rows),
    ]
    known = ["embedding", "id", "regret", "f0", "f1", "is_ood", "prediction", "image", "features.a", "strangest_layer"]
    names = [known[place] for place in rng.integers(0, len(known), size=rng.integers(1, 5))]  # some of them twice
    chosen = [columns[place] for place in rng.integers(0, len(columns), size=len(names))]
    file = io.BytesIO()
    pq.write_table(pa.Table.from_arrays(chosen, names=names), file, row_group_size=7)
    return file.getvalue()


DAMAGE: tuple[Mutation, ...] = (
    flip_bits,
    flip_near_an_end,
    truncate,
    extend,
    delete_slice,
    double_slice,
    overwrite,
)
ODD: dict[str, Mutation] = {
    ".npy": odd_npy,
    ".npz": odd_npz,
    ".csv": odd_text,
    ".txt": odd_text,
    ".parquet": odd_parquet,
    ".safetensors": odd_safetensors,
    ".json": odd_json,
    ".jsonl": odd_json,
}
"""What is odd in its own way, by suffix."""
