"""Paths on this machine, and URIs of object stores: s3://, gs:// or whatever else pyarrow reads."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from pnml.backend.extras import require

PathOrUri: TypeAlias = "Path | str"
"""A path on this machine, or a URI as text."""


def pyarrow(module: str = "") -> Any:
    """Import pyarrow, or one of its modules, as ".parquet"; or say which extra of pnml brings it."""
    return require(f"pyarrow{module}", extra="parquet", what="parquet, and object stores,")


def path_or_uri(text: str) -> PathOrUri:
    """Return a URI as it is, and anything else as a path.

    >>> path_or_uri("s3://bucket/train"), path_or_uri("train.npy").suffix
    ('s3://bucket/train', '.npy')
    """
    return text if "://" in text else Path(text)


def resolve(path: PathOrUri) -> tuple[Any, str]:
    """Return the pyarrow filesystem of a path or URI, and the path in that filesystem."""
    fs = pyarrow(".fs")
    if isinstance(path, Path):
        return fs.LocalFileSystem(), str(path.absolute())
    scheme, _, rest = path.partition("://")
    user, at, rest = rest.rpartition("@")
    if at and ":" in user:
        raise ValueError(
            f"{scheme}://...@{rest} holds a password, which would show up in messages and manifests: set it in the "
            "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY; GOOGLE_APPLICATION_CREDENTIALS)"
        )
    limit = ""
    if scheme in {"gs", "gcs"} and "retry_limit_seconds=" not in path:  # the client retries in silence
        limit = ("&" if "?" in path else "?") + "retry_limit_seconds=60"
    try:
        filesystem, inner = fs.FileSystem.from_uri(path + limit)
    except (ValueError, NotImplementedError) as error:
        raise ValueError(f"{path} names no store that pyarrow reads ({error}): expected s3://, gs://, ...") from error
    return filesystem, inner.rstrip("/")


def find_parquet_files(path: PathOrUri) -> tuple[Any, list[Any]]:
    """Find the parquet file at ``path``, or all those below the folder at ``path``, sorted by path.

    Files and folders whose names begin with a dot or an underscore are ignored, as other readers do. A link to a folder
    is followed, but one to a folder that is read anyway raises ``ValueError``, because its rows would count twice.
    Returned are the pyarrow filesystem, and the ``FileInfo`` of every file.
    """
    fs = pyarrow(".fs")
    filesystem, inner = resolve(path)
    info = filesystem.get_file_info(inner)
    if info.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"{path} does not exist")
    if info.type == fs.FileType.File:
        return filesystem, [info]
    if filesystem.type_name == "local":
        check_links(Path(inner))
    below = filesystem.get_file_info(fs.FileSelector(inner, recursive=True))
    files = [info for info in below if info.type == fs.FileType.File and _is_visible_parquet(info.path, inner)]
    if not files:
        raise ValueError(f"no .parquet files in {path}: give a folder that holds some, or a file")
    return filesystem, sorted(files, key=lambda info: str(info.path))


def check_links(folder: Path) -> None:
    """Raise ``ValueError`` if a folder is found twice, by links, at or below a folder."""
    folders: dict[tuple[int, int], str] = {}
    for parent, below, _ in os.walk(folder, followlinks=True):
        below[:] = [name for name in below if not name.startswith((".", "_"))]
        status = Path(parent).stat()
        earlier = folders.setdefault((status.st_dev, status.st_ino), parent)
        if earlier != parent:
            link, other = sorted((parent, earlier), key=lambda one: (not Path(one).is_symlink(), len(one)))
            raise ValueError(f"{link} is a link to {other}, whose files would be read twice: remove the link")


def _is_visible_parquet(path: str, folder: str) -> bool:
    parts = PurePosixPath(path).relative_to(folder).parts
    return path.endswith(".parquet") and not any(part.startswith((".", "_")) for part in parts)
