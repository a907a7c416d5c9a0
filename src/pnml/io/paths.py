"""Where files are: on this machine, or in a store that a URI names, as s3://, gs:// or whatever else pyarrow reads."""

from __future__ import annotations

from pathlib import Path, PurePosixPath
from typing import Any, TypeAlias

from pnml.backend.extras import require

PathOrUri: TypeAlias = "Path | str"
"""A path on this machine, or a URI as text."""


def path_or_uri(text: str) -> PathOrUri:
    """Tell a path from a URI.

    >>> path_or_uri("s3://bucket/train"), path_or_uri("train.npy").suffix
    ('s3://bucket/train', '.npy')
    """
    return text if "://" in text else Path(text)


def located(place: PathOrUri) -> tuple[Any, str]:
    """Give the pyarrow filesystem that holds a place, and its path there."""
    fs = require("pyarrow.fs", extra="parquet", what="reading parquet")
    if isinstance(place, Path):
        return fs.LocalFileSystem(), str(place.absolute())
    scheme, _, rest = place.partition("://")
    user, at, rest = rest.rpartition("@")
    if at and ":" in user:
        raise ValueError(
            f"{scheme}://...@{rest} holds a password, which would show up in messages and manifests: set it in the "
            "environment (AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY; GOOGLE_APPLICATION_CREDENTIALS)"
        )
    limit = ""
    if scheme in {"gs", "gcs"} and "retry_limit_seconds=" not in place:  # or it would go on trying in silence
        limit = ("&" if "?" in place else "?") + "retry_limit_seconds=60"
    try:
        filesystem, path = fs.FileSystem.from_uri(place + limit)
    except (ValueError, NotImplementedError) as error:
        raise ValueError(f"{place} names no store that pyarrow reads ({error}): expected s3://, gs://, ...") from error
    return filesystem, path.rstrip("/")


def parquet_files_at(place: PathOrUri) -> tuple[Any, list[Any]]:
    """Give the filesystem, and the parquet file there or all those below the folder there, sorted by path.

    Files and folders whose names begin with a dot or an underscore are passed over, as other readers do.

    Returns:
        The filesystem, and pyarrow's ``FileInfo`` of every file.
    """
    fs = require("pyarrow.fs", extra="parquet", what="reading parquet")
    filesystem, path = located(place)
    found = filesystem.get_file_info(path)
    if found.type == fs.FileType.NotFound:
        raise FileNotFoundError(f"{place} does not exist")
    if found.type == fs.FileType.File:
        return filesystem, [found]
    below = filesystem.get_file_info(fs.FileSelector(path, recursive=True))
    files = [info for info in below if info.type == fs.FileType.File and _is_shown_parquet(info.path, path)]
    if not files:
        raise ValueError(f"no .parquet files in {place}")
    return filesystem, sorted(files, key=lambda info: str(info.path))


def _is_shown_parquet(path: str, folder: str) -> bool:
    parts = PurePosixPath(path).relative_to(folder).parts
    return path.endswith(".parquet") and not any(part.startswith((".", "_")) for part in parts)
