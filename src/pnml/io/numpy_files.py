"""Read embeddings from ``.npy`` (memory-mapped) and ``.npz`` (read from the archive in batches) files."""

from __future__ import annotations

import math
import zipfile
import zlib
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import numpy as np

from pnml.io.feature_columns import PREFIX, choose_columns, choose_layers
from pnml.io.source import RowReader
from pnml.io.texts import as_texts, decode_ids

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Header = tuple[tuple[int, ...], np.dtype[Any]]


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

    return RowReader(path, count, read, width=width)


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
    _check_matrix(path, (rows.shape, rows.dtype))
    return rows


def open_npz(path: Path, layers: Sequence[str] | None = None, columns: Sequence[str] | None = None) -> RowReader:
    """Open an ``.npz`` with ``embedding``, (N, M), and optionally ``id``, (N,); a single array may have any name.

    Features of earlier layers are arrays ``features.NAME``, (N, features of that layer), one for each layer; all are
    read if ``layers`` is None. ``columns`` name the array that holds the embeddings, if it is another one.
    """
    headers = _read_headers(path)
    name = _array_name(path, [one for one in headers if one != "id" and not one.startswith(PREFIX)], columns)
    chosen = choose_layers(path, headers, layers)
    members = [name, *(PREFIX + layer for layer in chosen)]
    count, width = _check_matrix(path, headers[name], name)
    for member in members:
        rows, _ = _check_matrix(path, headers[member], member)
        if rows != count:
            raise ValueError(f"{member!r} in {path} has {rows} rows, where there are {count} embeddings")
    if "id" in headers and headers["id"][0] != (count,):
        raise ValueError(f"'id' in {path} has shape {headers['id'][0]}: expected one for each of {count} rows")

    def read(start: int, size: int) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        with _archive(path) as archive:
            arrays = [_batches(path, archive, member, start, size) for member in members]
            ids = _batches(path, archive, "id", start, size) if "id" in headers else None
            for first, *parts in zip(range(start, count, size), *arrays, strict=True):
                batch = parts[0] if len(parts) == 1 else np.hstack(parts)
                numbered = np.arange(first, first + len(batch))
                yield numbered if ids is None else _as_ids(next(ids), first), batch

    widths = tuple((layer, headers[PREFIX + layer][0][1]) for layer in chosen)
    id_bytes = headers["id"][1].itemsize if "id" in headers else 0
    return RowReader(path, count, read, width=width, layers=widths, columns=(name,), id_bytes=id_bytes)


def _array_name(path: Path, names: Sequence[str], columns: Sequence[str] | None) -> str:
    """Return the name of the array of embeddings: the chosen one, 'embedding', or the only one."""
    if columns:
        names = choose_columns(path, names, columns)
        if len(names) > 1:
            raise ValueError(f"--column {','.join(columns)} chooses the arrays {names} of {path}: choose one")
    elif "embedding" in names:
        return "embedding"
    if len(names) != 1:
        raise ValueError(
            f"{path} holds the arrays {[*names]}: name the one to use 'embedding', or choose it with --column"
        )
    return names[0]


@contextmanager
def _archive(path: Path) -> Iterator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(path) as archive:
            yield archive
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise ValueError(f"{path} is no whole .npz file ({error}): write it again with numpy.savez") from error


def _read_headers(path: Path) -> dict[str, Header]:
    """Return the shape and dtype of every array of an archive, which must hold as much as they say."""
    headers: dict[str, Header] = {}
    with _archive(path) as archive:
        for member in archive.infolist():
            name = member.filename.removesuffix(".npy")
            if name == member.filename or name in headers:
                why = "twice" if name in headers else "which is no .npy"
                raise ValueError(f"{path} holds {member.filename!r}, {why}: write it again with numpy.savez")
            with archive.open(member) as file:
                shape, dtype = headers[name] = _read_header(path, file)
            size = math.prod(shape) * dtype.itemsize
            if not 0 <= size <= member.file_size:
                raise ValueError(
                    f"{member.filename!r} of {path} has {member.file_size:,} bytes, and its header says that its rows "
                    f"take {size:,}: write the file again with numpy.savez"
                )
    return headers


def _read_header(path: Path, file: IO[bytes]) -> Header:
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


def _as_ids(ids: NDArray[Any], first: int) -> NDArray[Any]:
    """Return ids of consecutive rows, from number ``first`` on; bytes as text."""
    if ids.dtype.kind == "S":
        return decode_ids(ids.tolist(), first)
    return as_texts(ids.tolist()) if ids.dtype.kind == "U" else ids


def _check_matrix(path: Path, header: Header, name: str = "") -> tuple[int, int]:
    """Return the shape of a matrix of numbers; raise ``ValueError`` for anything else."""
    shape, dtype = header
    if len(shape) != 2 or dtype.kind not in "fiub":
        array = f"the array {name!r} of {path}" if name else f"{path}"
        pool = "; pool pixels or tokens to means and standard deviations" if len(shape) > 2 else ""
        raise ValueError(f"{array} holds {dtype} of shape {shape}: expected numbers of shape (rows, features){pool}")
    return shape[0], shape[1]
