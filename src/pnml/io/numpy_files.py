"""Read embeddings from ``.npy`` (memory-mapped) and ``.npz`` (read from the archive in batches) files."""

from __future__ import annotations

import math
import zipfile
import zlib
from contextlib import contextmanager
from functools import partial
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from pnml.io.feature_columns import PREFIX, choose_columns, choose_layers
from pnml.io.fingerprint import fingerprint_path
from pnml.io.source import RowReader
from pnml.io.texts import as_texts, decode_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray


def open_npy(path: Path, layers: Sequence[str] | None = None, columns: Sequence[str] | None = None) -> RowReader:
    """Open an ``.npy`` of shape (N, M) as a memory map, of which only the requested rows are read.

    It holds embeddings alone, without a name: naming ``layers`` or ``columns`` raises ``ValueError``.
    """
    choose_layers(path, (), layers)
    if columns:
        raise ValueError(f"{path} holds one array without a name, got --column {','.join(columns)}: leave it out")
    count, width = _map_rows(path).shape

    def read(start: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        for first in range(start, count, size):
            rows = _map_rows(path)  # anew, so that pages which were read count no longer as memory of this process
            if rows.shape != (count, width):
                raise ValueError(f"{path} changed while it was read: run the command again")
            batch = np.array(rows[first : first + size], dtype=rows.dtype.newbyteorder("="))
            del rows
            yield np.arange(first, first + len(batch)), batch

    return RowReader(path, count, read, partial(fingerprint_path, path), width=width)


def _map_rows(path: Path) -> NDArray[Any]:
    try:
        rows: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise ValueError(
            f"{path} is no whole .npy file of numbers ({error}): write it again with numpy.save"
        ) from error
    if not isinstance(rows, np.ndarray):
        rows.close()
        raise ValueError(  # noqa: TRY004 - of the file
            f"{path} is an archive of arrays, not one array: rename it to {path.with_suffix('.npz').name}"
        )
    _matrix_shape(path, rows.shape, rows.dtype)
    return rows


def open_npz(path: Path, layers: Sequence[str] | None = None, columns: Sequence[str] | None = None) -> RowReader:
    """Open an ``.npz`` with ``embedding``, (N, M), and optionally ``id``, (N,); a single array may have any name.

    Features of earlier layers are arrays ``features.NAME``, (N, features of that layer), one for each layer.

    Args:
        path: the file.
        layers: names of the layers whose features to read; all that are there when None.
        columns: the name of the array that holds the embeddings, if it is another one.
    """
    headers: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
    with _archive(path) as archive:
        for member in archive.namelist():
            if not member.endswith(".npy") or member.removesuffix(".npy") in headers:
                why = "twice" if member.endswith(".npy") else "which is no .npy"
                raise ValueError(f"{path} holds {member!r}, {why}: write it again with numpy.savez")
            with archive.open(member) as file:
                shape, dtype = headers[member.removesuffix(".npy")] = _read_header(path, file)
                _check_length(path, archive.getinfo(member), math.prod(shape) * dtype.itemsize)
    others = [name for name in headers if name != "id" and not name.startswith(PREFIX)]
    name = _array_name(path, others, columns)
    count, width = _matrix_shape(path, *headers[name], name)
    if "id" in headers and headers["id"][0] != (count,):
        raise ValueError(f"'id' in {path} has shape {headers['id'][0]}: expected one for each of {count} rows")

    chosen = choose_layers(path, headers, layers)
    members = [name, *(PREFIX + layer for layer in chosen)]
    shapes = [_matrix_shape(path, *headers[member], member) for member in members]
    for member, (rows, _) in zip(members, shapes, strict=True):
        if rows != count:
            raise ValueError(f"{member!r} in {path} has {rows} rows, where there are {count} embeddings")

    def read(start: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        with _archive(path) as archive:
            arrays = [_batches(path, archive, member, start, size) for member in members]
            batches = (parts[0] if len(parts) == 1 else np.hstack(parts) for parts in zip(*arrays, strict=True))
            if "id" in headers:
                yield from zip(_id_batches(path, archive, start, size), batches, strict=True)
            else:
                for first, batch in zip(range(start, count, size), batches, strict=True):
                    yield np.arange(first, first + len(batch)), batch

    widths = tuple((layer, width) for layer, (_, width) in zip(chosen, shapes[1:], strict=True))
    fingerprint = partial(fingerprint_path, path)
    id_bytes = headers["id"][1].itemsize if "id" in headers else 0
    return RowReader(path, count, read, fingerprint, (), width, widths, (name,), id_bytes)


def _array_name(path: Path, names: Sequence[str], columns: Sequence[str] | None) -> str:
    """Return the name of the array of embeddings: the chosen one, 'embedding', or the only one."""
    if columns:
        chosen = choose_columns(path, names, columns)
        if len(chosen) > 1:
            raise ValueError(f"--column {','.join(columns)} chooses the arrays {chosen} of {path}: choose one")
        return chosen[0]
    if "embedding" in names:
        return "embedding"
    if len(names) != 1:
        held = [*names]
        raise ValueError(f"{path} holds the arrays {held}: name the one to use 'embedding', or choose it with --column")
    return names[0]


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is no whole .npz file ({error}): write it again with numpy.savez") from error


def _check_length(path: Path, member: zipfile.ZipInfo, size: int) -> None:
    """Refuse an array that is said to be larger than what the archive holds of it, before work is planned by it."""
    if not 0 <= size <= member.file_size:
        raise ValueError(
            f"{member.filename!r} of {path} has {member.file_size:,} bytes, and its header says that its rows take "
            f"{size:,}: write the file again with numpy.savez"
        )


def _read_header(path: Path, file: IO[bytes]) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype of an array in the ``.npy`` format."""
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran_order, dtype = read(file)
    if fortran_order:
        raise ValueError(f"{path} is stored column by column: write it again with numpy.ascontiguousarray(rows)")
    if dtype.hasobject:
        raise ValueError(f"{path} holds Python objects: write it again with numbers, and ids as numbers or text")
    return shape, dtype


def _batches(path: Path, archive: zipfile.ZipFile, name: str, start: int, size: int) -> Iterator[NDArray[Any]]:
    """Yield ``size`` rows at a time, from row ``start`` on, with no more than that in memory."""
    with archive.open(f"{name}.npy") as file:
        shape, dtype = _read_header(path, file)
        row_bytes = dtype.itemsize * int(np.prod(shape[1:]))
        file.seek(start * row_bytes, 1)
        for first in range(start, shape[0], size):
            count = min(size, shape[0] - first)
            content = file.read(count * row_bytes)
            if len(content) != count * row_bytes:
                raise EOFError(f"{name} ends before row {first + count}")
            yield np.frombuffer(content, dtype).reshape(count, *shape[1:]).astype(dtype.newbyteorder("="), copy=False)


def _id_batches(path: Path, archive: zipfile.ZipFile, start: int, size: int) -> Iterator[NDArray[Any]]:
    """Yield ids; bytes as text."""
    for ids in _batches(path, archive, "id", start, size):
        if ids.dtype.kind == "S":
            yield decode_ids(ids.tolist(), start)
        else:
            yield as_texts(ids.tolist()) if ids.dtype.kind == "U" else ids
        start += len(ids)


def _matrix_shape(path: Path, shape: tuple[int, ...], dtype: np.dtype[Any], name: str = "") -> tuple[int, int]:
    if len(shape) != 2 or dtype.kind not in "fiub":
        array = f"the array {name!r} of {path}" if name else f"{path}"
        pool = "; pool pixels or tokens to means and standard deviations" if len(shape) > 2 else ""
        raise ValueError(f"{array} holds {dtype} of shape {shape}: expected numbers of shape (rows, features){pool}")
    return shape[0], shape[1]
