"""Read encoded images from a folder or from parquet, a batch at a time."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pnml.backend.read_errors import names_its_file
from pnml.io.fingerprint import fingerprint_folder
from pnml.io.parquet_files import label_column, open_parquet, table_ids
from pnml.io.paths import pyarrow
from pnml.io.source import RowReader, naming_its_file
from pnml.io.texts import as_texts

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from pnml.io.paths import PathOrUri

SUFFIXES = frozenset({".bmp", ".gif", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp"})


@names_its_file
def open_images(path: PathOrUri) -> RowReader:
    """Open a folder of image files (at any depth, sorted by path), or parquet with a column of images.

    Parquet is a file on this machine, or a file or folder in a store. The ids of image files are their paths below the
    folder; those of parquet are its column ``id``, or the row numbers. The rows are encoded images: files, or bytes.
    """
    reader = _open_folder(path) if isinstance(path, Path) and path.is_dir() else _open_parquet(path)
    if reader.count == 0:
        raise ValueError(f"{path} is empty: no images to read")
    return naming_its_file(reader)


def _open_folder(folder: Path) -> RowReader:
    files = some_image_files(folder)
    names = [file.relative_to(folder).as_posix() for file in files]
    for name in names:
        if os.fsencode(name) != name.encode(errors="replace"):
            raise ValueError(
                f"the file {os.fsencode(name)!r} in {folder} has a name that is not UTF-8, and names are ids: rename it"
            )

    def read(start: int, size: int) -> Iterator[tuple[NDArray[Any], list[Path]]]:
        for first in range(start, len(files), size):
            batch = slice(first, first + size)
            yield as_texts(names[batch]), files[batch]

    return RowReader(folder, len(files), read, fingerprint=partial(fingerprint_folder, folder, files))


def _open_parquet(path: PathOrUri) -> RowReader:
    if isinstance(path, Path) and path.suffix != ".parquet":
        if path.suffix.lower() in SUFFIXES:
            raise ValueError(f"{path} is one image: expected a folder of images, or a .parquet file")
        raise ValueError(f"{path} is neither a folder of images nor a .parquet file")
    files = open_parquet(path)
    column, _ = image_columns(path, files.schema)
    columns = [column, *(["id"] if "id" in files.schema.names else [])]

    def read(start: int, size: int) -> Iterator[tuple[NDArray[Any], list[bytes]]]:
        for first, table in files.tables(columns, start, size):
            yield table_ids(table, first), [bytes_of(value) for value in table.column(column).to_pylist()]

    return RowReader(path, files.count, read, starts=files.starts)


def image_files(folder: Path) -> list[Path]:
    """Return all image files below ``folder``, sorted by path; hidden ones are left out, links to folders not followed.

    A link to nothing is among them, to be missed when it is read. A folder that cannot be listed raises ``OSError``.
    """
    paths = [Path(parent, name) for parent, _, names in os.walk(folder, onerror=_raise) for name in names]
    return sorted(
        path
        for path in paths
        if path.suffix.lower() in SUFFIXES
        and not path.name.startswith(".")
        and (path.is_file() or not path.exists())  # neither a pipe nor a socket
    )


def some_image_files(folder: Path) -> list[Path]:
    """Return what :func:`image_files` does; raise ``ValueError`` where there are none."""
    files = image_files(folder)
    if not files:
        raise ValueError(f"no images in {folder}: expected files ending in {', '.join(sorted(SUFFIXES))}")
    return files


def _raise(error: OSError) -> None:
    raise error


def image_columns(path: Path | str, schema: Any) -> tuple[str, str | None]:
    """Return the names of the columns of images and of labels; None without labels."""
    types = pyarrow(".types")

    def holds_bytes(kind: Any) -> bool:
        if types.is_struct(kind):
            return any(part.name == "bytes" and holds_bytes(part.type) for part in kind)
        return bool(types.is_binary(kind) or types.is_large_binary(kind))

    images = [field.name for field in schema if holds_bytes(field.type)]
    if not images:
        found = ", ".join(f"{field.name} ({field.type})" for field in schema)
        raise ValueError(f"{path} has no column of images: expected bytes, or structs with bytes, got {found}")
    return images[0], label_column(schema)


def bytes_of(value: Any) -> bytes:
    """Return the encoded image in a cell; b"", which does not decode, for an empty cell."""
    content = value["bytes"] if isinstance(value, dict) else value
    return content or b""
