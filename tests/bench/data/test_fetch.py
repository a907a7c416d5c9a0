from __future__ import annotations

import hashlib
import io
import tarfile
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pnml_bench.data import SETS, load
from pnml_bench.data.fetch import fetch, unpack
from pnml_bench.data.source import Download, Source

from .layouts import make_cifar10, make_odin, make_svhn, make_tiny_imagenet
from .server import FileServer, serve_files

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve_files() as running:
        yield running


def packed(folder: Path) -> bytes:
    """Return a .tar.gz of a folder."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.add(folder, folder.name)
    return file.getvalue()


def served(server: FileServer, name: str, files: dict[str, bytes]) -> Source:
    """Return the set with its downloads moved to the local server."""
    source = SETS[name]
    best = source.layouts[0]
    server.files |= files
    downloads = tuple(
        Download(
            f"{server.address}/{file}",
            part.file,
            hashlib.md5(content, usedforsecurity=False).hexdigest(),
            part.archive,
        )
        for part, (file, content) in zip(best.downloads, files.items(), strict=True)
    )
    return replace(source, layouts=(replace(best, downloads=downloads), *source.layouts[1:]))


@pytest.fixture
def cifar10(server: FileServer, tmp_path: Path, cache: Path) -> Source:
    make_cifar10(tmp_path / "server", 4)
    return served(server, "cifar10", {"cifar.tar.gz": packed(tmp_path / "server" / "cifar-10-batches-py")})


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_fetch_unpacks_archive_once(cifar10: Source, server: FileServer, cache: Path) -> None:
    folder = fetch(cifar10)
    assert folder == cache / "data" / "cifar-10-batches-py"
    assert names_in(cache / "data") == ["cifar-10-batches-py"]
    assert len(load("cifar10", split="train")) == 20
    assert fetch(cifar10) == folder
    assert len(server.requests) == 1


@pytest.mark.parametrize("damage", ["truncated", "html"])
def test_fetch_rejects_damaged_archive(damage: str, server: FileServer, tmp_path: Path, cache: Path) -> None:
    make_odin(tmp_path, 30)
    whole = packed(tmp_path / "iSUN")
    damaged = {
        "truncated": whole[: len(whole) // 2],
        "html": b"<html>this file has moved</html>",
    }[damage]
    with pytest.raises(ValueError, match="cannot be unpacked"):
        fetch(served(server, "isun", {"iSUN.tar.gz": damaged}))
    assert names_in(cache / "data") == ["iSUN.tar.gz"]


def test_fetch_of_single_files_keeps_those_present(server: FileServer, tmp_path: Path, cache: Path) -> None:
    make_svhn(tmp_path, 5)
    files = {file: (tmp_path / "svhn" / file).read_bytes() for file in ("train_32x32.mat", "test_32x32.mat")}
    source = served(server, "svhn", files)
    server.files.pop("test_32x32.mat")
    with pytest.raises(ConnectionError, match="404"):
        fetch(source)
    server.files |= files
    assert fetch(source) == cache / "data" / "svhn"
    assert len(load("svhn")) == len(load("svhn", split="train")) == 5
    assert [name for name, _ in server.requests] == ["train_32x32.mat", "test_32x32.mat", "test_32x32.mat"]


def test_fetch_gets_archive_even_if_alternative_layout_is_present(
    server: FileServer, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny_imagenet(tmp_path / "have", 3)
    make_odin(tmp_path / "server", 4)
    monkeypatch.setenv("PNML_DATA", str(tmp_path / "have"))
    source = served(server, "tinyimagenet_crop", {"I.tar.gz": packed(tmp_path / "server" / "Imagenet")})
    server.files.clear()
    with pytest.raises(ConnectionError, match=r"Alternatively, unpack http://cs231n.*tiny-imagenet-200\.zip in"):
        fetch(source)
    server.files["I.tar.gz"] = packed(tmp_path / "server" / "Imagenet")
    assert len(load("tinyimagenet_crop")) == 3
    fetch(source)
    assert len(load("tinyimagenet_crop")) == 4


def test_fetch_rejects_archive_without_expected_files(server: FileServer, tmp_path: Path, cache: Path) -> None:
    make_odin(tmp_path, 2)
    with pytest.raises(ValueError, match="contains no folder LSUN"):
        fetch(served(server, "lsun_crop", {"LSUN.tar.gz": packed(tmp_path / "iSUN")}))
    make_cifar10(tmp_path, 2)
    (tmp_path / "cifar-10-batches-py" / "test_batch").unlink()
    with pytest.raises(ValueError, match="test_batch is not in it"):
        fetch(served(server, "cifar10", {"c.tar.gz": packed(tmp_path / "cifar-10-batches-py")}))
    with pytest.raises(ValueError, match="exists but is incomplete: move it away"):
        fetch(served(server, "cifar10", {"c.tar.gz": packed(tmp_path / "cifar-10-batches-py")}))


def test_fetch_without_downloads_raises_with_pages(cache: Path) -> None:
    with pytest.raises(ValueError, match=r"imagenet30 cannot be downloaded automatically.*drive\.google\.com"):
        fetch(SETS["imagenet30"])


@contextmanager
def tar_with(path: Path, *members: tarfile.TarInfo) -> Iterator[Path]:
    with tarfile.open(path, "w:gz") as archive:
        for member in members:
            content = b"content" if member.isreg() else b""
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    yield path


def link(name: str, target: str, kind: bytes) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, target
    return member


@pytest.mark.parametrize(
    "bad",
    [
        tarfile.TarInfo("../escaped"),
        tarfile.TarInfo("set/../../escaped"),
        link("set/link", "../../escaped", tarfile.SYMTYPE),
        link("set/link", "/etc/passwd", tarfile.SYMTYPE),
        link("set/link", "../escaped", tarfile.LNKTYPE),
        link("set/pipe", "", tarfile.FIFOTYPE),
    ],
    ids=lambda member: f"{member.name} {member.linkname}",
)
def test_unpack_rejects_tar_member_outside_archive(bad: tarfile.TarInfo, tmp_path: Path) -> None:
    with (
        tar_with(tmp_path / "set.tar.gz", tarfile.TarInfo("set/good"), bad) as archive,
        pytest.raises(ValueError, match=r"set\.tar\.gz cannot be unpacked"),
    ):
        unpack(archive, tmp_path / "data" / "set")
    assert names_in(tmp_path) == ["data", "set.tar.gz"]
    assert names_in(tmp_path / "data") == []


@pytest.mark.parametrize("bad", ["../escaped", "set/../../escaped", "/escaped", "..\\escaped", "C:\\escaped"])
def test_unpack_writes_no_zip_member_outside_archive(bad: str, tmp_path: Path) -> None:
    archive = tmp_path / "set.zip"
    with zipfile.ZipFile(archive, "w") as packing:
        packing.writestr("set/good", "content")
        packing.writestr(bad, "content")
    unpack(archive, tmp_path / "data" / "set")
    assert names_in(tmp_path) == ["data", "set.zip"]
    assert names_in(tmp_path / "data") == ["set"]
    assert not Path("/escaped").exists()


def test_unpack_replaces_partial_folder_of_killed_process(tmp_path: Path) -> None:
    make_tiny_imagenet(tmp_path / "server", 3)
    archive = tmp_path / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(archive, "w") as packing:
        for path in sorted((tmp_path / "server").rglob("*")):
            packing.write(path, path.relative_to(tmp_path / "server"))
    partial = tmp_path / "data" / ".tiny-imagenet-200.partial" / "tiny-imagenet-200" / "test" / "images"
    partial.mkdir(parents=True)
    (partial / "half.JPEG").write_bytes(b"half")
    unpack(archive, tmp_path / "data" / "tiny-imagenet-200")
    assert names_in(tmp_path / "data") == ["tiny-imagenet-200"]
    assert len(load("tinyimagenet_resize", root=tmp_path / "data")) == 3
