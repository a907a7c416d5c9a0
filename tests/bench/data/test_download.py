from __future__ import annotations

import hashlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.data.server import FileServer, serve_files
from pnml_bench.data.download import cache_dir, download, verify

if TYPE_CHECKING:
    from collections.abc import Iterator

CONTENT = bytes(i * i % 251 for i in range(300_000))
SHA256 = hashlib.sha256(CONTENT).hexdigest()
MD5 = hashlib.md5(CONTENT, usedforsecurity=False).hexdigest()


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve_files() as running:
        running.files["file"] = CONTENT
        yield running


def url(server: FileServer) -> str:
    return f"{server.address}/file"


def ranges(server: FileServer) -> list[str | None]:
    return [byte_range for _, byte_range in server.requests]


def part(path: Path) -> Path:
    return path.with_name(path.name + ".part")


@pytest.mark.parametrize("digest", [{"sha256": SHA256}, {"sha256": SHA256[:8].upper()}, {"md5": MD5}, {}])
def test_download_writes_file_and_shows_progress(
    server: FileServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], digest: dict[str, str]
) -> None:
    target = tmp_path / "new folder" / "file.bin"
    assert download(url(server), target, **digest, what="the thing") == target
    assert target.read_bytes() == CONTENT
    assert list(target.parent.iterdir()) == [target]
    out, err = capsys.readouterr()
    assert out == ""
    assert "the thing" in err


def test_existing_file_is_verified_and_kept(server: FileServer, tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_bytes(CONTENT)
    assert download(url(server), target, sha256=SHA256, what="it") == target
    assert download(url(server), target, what="it") == target
    target.write_bytes(b"other")
    with pytest.raises(ValueError, match="delete it and fetch it again"):
        download(url(server), target, sha256=SHA256, what="it")
    assert target.read_bytes() == b"other"
    assert ranges(server) == []


@pytest.mark.parametrize("digest", [{"sha256": SHA256}, {}])
def test_interrupted_download_resumes(server: FileServer, tmp_path: Path, digest: dict[str, str]) -> None:
    target = tmp_path / "file"
    server.close_after = 100_000
    with pytest.raises(ConnectionError, match="closed after 100000 of 300000 bytes") as caught:
        download(url(server), target, **digest, what="the thing")
    message = str(caught.value)
    assert all(word in message for word in ("the thing", url(server), str(target), str(part(target))))
    assert not target.exists()
    assert part(target).read_bytes() == CONTENT[:100_000]

    server.close_after = 250_000
    with pytest.raises(ConnectionError, match="closed after 250000 of 300000 bytes"):
        download(url(server), target, **digest, what="the thing")
    server.close_after = None
    download(url(server), target, **digest, what="the thing")
    assert target.read_bytes() == CONTENT
    assert ranges(server) == [None, "bytes=100000-", "bytes=250000-"]


def test_server_without_ranges_restarts(server: FileServer, tmp_path: Path) -> None:
    target = tmp_path / "file"
    part(target).write_bytes(CONTENT[:1000])
    server.supports_ranges = False
    download(url(server), target, sha256=SHA256, what="it")
    assert target.read_bytes() == CONTENT
    assert ranges(server) == ["bytes=1000-"]


@pytest.mark.parametrize(("kind", "found"), [("sha256", SHA256), ("md5", MD5)])
def test_corrupted_download_is_deleted_and_raises(server: FileServer, tmp_path: Path, kind: str, found: str) -> None:
    target = tmp_path / "file"
    expected = found[::-1]
    with pytest.raises(ValueError, match=f"the thing .*corrupted.*expected {kind} {expected}, found {found}"):
        download(url(server), target, what="the thing", **{kind: expected})
    assert list(tmp_path.iterdir()) == []


def test_missing_url_raises(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(ConnectionError, match="the thing: the server answered 404 Not Found") as caught:
        download(url(server) + "s", tmp_path / "file", what="the thing")
    assert f"download {url(server)}s by hand and put it at {tmp_path / 'file'}" in str(caught.value)
    assert ".part" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("address", ["file:///etc/hostname", "ftp://host/file", "host/file"])
def test_other_url_schemes_raise(tmp_path: Path, address: str) -> None:
    with pytest.raises(ValueError, match="http://"):
        download(address, tmp_path / "file", what="it")


def test_verify_compares_every_digest(tmp_path: Path) -> None:
    path = tmp_path / "big"
    content = b"x" * 3_000_000
    path.write_bytes(content)
    digest = hashlib.sha256(content).hexdigest()
    verify(path, sha256=digest)
    verify(path, sha256=digest[:8], md5=hashlib.md5(content, usedforsecurity=False).hexdigest())
    with pytest.raises(ValueError, match=f"expected md5 {MD5}"):
        verify(path, sha256=digest, md5=MD5)
    with pytest.raises(ValueError, match="pass sha256= or md5="):
        verify(path)
    with pytest.raises(FileNotFoundError):
        verify(tmp_path / "absent", sha256=digest)


@pytest.mark.parametrize(
    ("digest", "message"),
    [
        ({"sha256": "1234567"}, "8 to 64 hex digits"),
        ({"sha256": "x" * 64}, "8 to 64 hex digits"),
        ({"sha256": "a" * 65}, "8 to 64 hex digits"),
        ({"md5": MD5[:-1]}, "32 hex digits"),
    ],
)
def test_invalid_digest_raises_before_download(tmp_path: Path, digest: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        download("http://127.0.0.1:1/file", tmp_path / "file", **digest, what="it")
    with pytest.raises(ValueError, match=message):
        verify(tmp_path / "absent", **digest)


def test_cache_dir_follows_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("PNML_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dir() == Path.home() / ".cache" / "pnml"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_dir() == tmp_path / "pnml"
    monkeypatch.setenv("PNML_CACHE", "~/mine")
    assert cache_dir() == Path.home() / "mine"
