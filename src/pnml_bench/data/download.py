"""Download files over HTTP with progress, resuming and checksums."""

from __future__ import annotations

import hashlib
import os
from http.client import HTTPException
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn, TransferSpeedColumn

from pnml._version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator

_CHUNK = 1 << 20  # bytes
_TIMEOUT = 30.0  # seconds without data
_MIN_SHA256_DIGITS = 8  # as in torchvision's file names
_RANGE_NOT_SATISFIABLE = 416
_PARTIAL_CONTENT = 206


def cache_dir() -> Path:
    """Return the folder for downloaded files: ``PNML_CACHE``, or ``pnml`` in the user's cache folder.

    >>> from unittest.mock import patch
    >>> with patch.dict("os.environ", PNML_CACHE="/data/pnml"):
    ...     cache_dir().as_posix()
    '/data/pnml'
    """
    if own := os.environ.get("PNML_CACHE"):
        return Path(own).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "pnml"


def verify(path: str | os.PathLike[str], *, sha256: str | None = None, md5: str | None = None) -> None:
    """Raise ``ValueError`` if a file does not have the given digests.

    Args:
        path: the file, read in chunks.
        sha256: its digest in hex, or at least the first 8 digits.
        md5: its digest in hex.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder) / "abc.txt"
    ...     _ = path.write_text("abc")
    ...     verify(path, sha256="ba7816bf8f01")
    """
    expected = _expected_digests(sha256, md5)
    if not expected:
        raise ValueError(f"no digest to compare {path} with: pass sha256= or md5=")
    hashers = {kind: hashlib.new(kind, usedforsecurity=False) for kind in expected}
    with Path(path).open("rb") as file:
        while chunk := file.read(_CHUNK):
            for hasher in hashers.values():
                hasher.update(chunk)
    for kind, digest in expected.items():
        found = hashers[kind].hexdigest()
        if not found.startswith(digest):
            raise ValueError(
                f"{path} is not the expected file: expected {kind} {digest}, found {found}; "
                "delete it and fetch it again"
            )


def download(
    url: str,
    destination: str | os.PathLike[str],
    *,
    sha256: str | None = None,
    md5: str | None = None,
    what: str,
) -> Path:
    """Download ``url`` to the file ``destination``, which is created only when it is complete and verified.

    An existing file is verified and kept. Data is written to ``destination`` + ``.part``, from which the next call
    resumes after an interruption. Progress is shown on stderr.

    Args:
        url: an http or https address.
        destination: the file to write; its folder is created if needed.
        sha256: the digest in hex, or at least its first 8 digits.
        md5: the digest in hex. Without sha256 and md5 only the length is checked.
        what: a description for the progress bar and for errors.

    Returns:
        ``destination``.

    Raises:
        ConnectionError: the download failed or is incomplete; the part received is kept.
        ValueError: the download has another digest (it is deleted), or the arguments are invalid.
    """
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"cannot download {url!r}: expected an address starting with http:// or https://")
    destination = Path(destination)
    expected = _expected_digests(sha256, md5)
    if destination.exists():
        if expected:
            verify(destination, **expected)
        return destination
    destination.parent.mkdir(parents=True, exist_ok=True)
    partial = destination.with_name(destination.name + ".part")
    try:
        _fetch(url, partial, what)
    except _TransferError as error:
        kept = f" The part received is kept in {partial}: try again to resume." if partial.exists() else ""
        raise ConnectionError(
            f"could not download {what}: {error}.{kept} Or download {url} by hand and put it at {destination}"
        ) from error
    if expected:
        try:
            verify(partial, **expected)
        except ValueError as error:
            partial.unlink()
            raise ValueError(
                f"the download of {what} from {url} was corrupted and has been deleted: {error}"
            ) from error
    partial.replace(destination)
    return destination


class _TransferError(Exception):
    """A failure of the network, as opposed to the disk."""


def _expected_digests(sha256: str | None, md5: str | None) -> dict[str, str]:
    """Return the given digests by kind, in lower case; raise ``ValueError`` for an invalid one."""
    expected = {kind: given.lower() for kind, given in (("sha256", sha256), ("md5", md5)) if given is not None}
    for kind, digest in expected.items():
        shortest, longest = (_MIN_SHA256_DIGITS, 64) if kind == "sha256" else (32, 32)
        if not shortest <= len(digest) <= longest or not set(digest) <= set("0123456789abcdef"):
            lengths = f"{shortest} to {longest}" if shortest < longest else f"{longest}"
            raise ValueError(f"invalid {kind} {digest!r}: expected {lengths} hex digits")
    return expected


def _fetch(url: str, partial: Path, what: str) -> None:
    """Download ``url`` to ``partial``, resuming at its end."""
    start = partial.stat().st_size if partial.exists() else 0
    try:
        response = _open(url, start)
    except _TransferError as error:
        cause = error.__cause__
        if not (start and isinstance(cause, HTTPError) and cause.code == _RANGE_NOT_SATISFIABLE):
            raise
        # The server has no data beyond the partial file: it is complete, or belongs to another file.
        if cause.headers.get("Content-Range") == f"bytes */{start}":
            return
        start = 0
        response = _open(url, start)
    with response:
        if response.status != _PARTIAL_CONTENT:
            start = 0
        length = response.headers.get("Content-Length")
        total = start + int(length) if length is not None else None
        columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
        bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
        with partial.open("ab" if start else "wb") as file, bar as progress:
            task = progress.add_task(what, total=total, completed=start)
            for chunk in _chunks(response):
                file.write(chunk)
                progress.update(task, advance=len(chunk))
            received = file.tell()
    if total is not None and received < total:
        raise _TransferError(f"the connection closed after {received} of {total} bytes")


def _open(url: str, start: int) -> Any:
    headers = {"User-Agent": f"pnml/{__version__}"} | ({"Range": f"bytes={start}-"} if start else {})
    try:
        return urlopen(Request(url, headers=headers), timeout=_TIMEOUT)  # noqa: S310 (scheme checked in download)
    except HTTPError as error:
        error.close()
        raise _TransferError(f"the server answered {error.code} {error.reason}") from error
    except (OSError, HTTPException) as error:
        raise _TransferError(str(error)) from error


def _chunks(response: Any) -> Iterator[bytes]:
    try:
        while chunk := response.read1(_CHUNK):
            yield chunk
    except (OSError, HTTPException) as error:
        raise _TransferError(str(error)) from error
