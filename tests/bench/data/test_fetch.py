from __future__ import annotations

import hashlib
import io
import tarfile
import threading
import zipfile
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING

import pytest

from pnml.bench.data import SETS, load
from pnml.bench.data.fetch import fetch, unpack
from pnml.bench.data.source import Download, Source

from .layouts import make_cifar10, make_odin, make_svhn, make_tiny_imagenet

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Publisher:
    """A server of files: it can be made to hang up after some bytes, and remembers what was asked."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.hang_up_after: int | None = None
        self.asked: list[tuple[str, str | None]] = []
        self.address = ""


@pytest.fixture
def publisher() -> Iterator[Publisher]:
    state = Publisher()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name, wanted = self.path.lstrip("/"), self.headers.get("Range")
            state.asked.append((name, wanted))
            if name not in state.files:
                self.send_error(404)
                return
            start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted else 0
            content = state.files[name][start:]
            self.send_response(206 if wanted else 200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content[: state.hang_up_after])

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    state.address = f"http://127.0.0.1:{server.server_port}"
    yield state
    server.shutdown()
    server.server_close()
    thread.join()


def packed(folder: Path) -> bytes:
    """A .tar.gz of a folder, under its own name."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as archive:
        archive.add(folder, folder.name)
    return file.getvalue()


def served(publisher: Publisher, name: str, files: dict[str, bytes], *, md5: bool = True) -> Source:
    """The set with its downloads moved to the local publisher."""
    source = SETS[name]
    best = source.layouts[0]
    publisher.files |= files
    downloads = tuple(
        Download(
            f"{publisher.address}/{file}",
            part.file,
            hashlib.md5(content, usedforsecurity=False).hexdigest() if md5 else None,
            part.archive,
        )
        for part, (file, content) in zip(best.downloads, files.items(), strict=True)
    )
    return replace(source, layouts=(replace(best, downloads=downloads), *source.layouts[1:]))


@pytest.fixture
def cifar10(publisher: Publisher, tmp_path: Path, cache: Path) -> Source:
    make_cifar10(tmp_path / "publisher", 4)
    return served(publisher, "cifar10", {"cifar.tar.gz": packed(tmp_path / "publisher" / "cifar-10-batches-py")})


def contents(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []


def test_an_archive_is_fetched_unpacked_and_loaded(cifar10: Source, publisher: Publisher, cache: Path) -> None:
    folder = fetch(cifar10)
    assert folder == cache / "data" / "cifar-10-batches-py"
    assert contents(cache / "data") == ["cifar-10-batches-py"]
    assert len(load("cifar10", split="train")) == 20
    assert fetch(cifar10) == folder
    assert len(publisher.asked) == 1


def test_an_interrupted_fetch_goes_on(cifar10: Source, publisher: Publisher, cache: Path) -> None:
    publisher.hang_up_after = 1000
    with pytest.raises(ConnectionError, match="try again"):
        fetch(cifar10)
    assert contents(cache / "data") == ["cifar-10-python.tar.gz.part"]
    publisher.hang_up_after = None
    fetch(cifar10)
    assert publisher.asked[-1] == ("cifar.tar.gz", "bytes=1000-")
    assert contents(cache / "data") == ["cifar-10-batches-py"]
    assert len(load("cifar10")) == 4


def test_a_corrupted_download_is_refused(cifar10: Source, publisher: Publisher, cache: Path) -> None:
    whole = publisher.files["cifar.tar.gz"]
    publisher.files["cifar.tar.gz"] = whole[:-100] + bytes(100)
    with pytest.raises(ValueError, match="corrupted"):
        fetch(cifar10)
    assert contents(cache / "data") == []
    publisher.files["cifar.tar.gz"] = whole
    fetch(cifar10)
    assert len(load("cifar10")) == 4


@pytest.mark.parametrize("damage", ["cut", "noise", "flipped"])
def test_a_damaged_archive_without_checksum_is_refused(
    damage: str, publisher: Publisher, tmp_path: Path, cache: Path
) -> None:
    make_odin(tmp_path, 30)
    whole = packed(tmp_path / "iSUN")
    middle = len(whole) // 2
    damaged = {
        "cut": whole[:middle],
        "noise": b"<html>this file has moved</html>",
        "flipped": whole[:middle] + bytes(byte ^ 255 for byte in whole[middle : middle + 50]) + whole[middle + 50 :],
    }[damage]
    with pytest.raises(ValueError, match="cannot be unpacked"):
        fetch(served(publisher, "isun", {"iSUN.tar.gz": damaged}, md5=False))
    assert contents(cache / "data") == ["iSUN.tar.gz"]


def test_single_files_are_fetched_into_their_folder(publisher: Publisher, tmp_path: Path, cache: Path) -> None:
    make_svhn(tmp_path, 5)
    files = {file: (tmp_path / "svhn" / file).read_bytes() for file in ("train_32x32.mat", "test_32x32.mat")}
    source = served(publisher, "svhn", files)
    publisher.files.pop("test_32x32.mat")
    with pytest.raises(ConnectionError, match="404"):
        fetch(source)
    publisher.files |= files
    assert fetch(source) == cache / "data" / "svhn"
    assert len(load("svhn")) == len(load("svhn", split="train")) == 5
    assert [name for name, _ in publisher.asked] == ["train_32x32.mat", "test_32x32.mat", "test_32x32.mat"]


def test_the_archive_is_fetched_even_where_the_pictures_could_be_made(
    publisher: Publisher, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_tiny_imagenet(tmp_path / "have", 3)
    make_odin(tmp_path / "publisher", 4)
    monkeypatch.setenv("PNML_DATA", str(tmp_path / "have"))
    source = served(publisher, "tinyimagenet_crop", {"I.tar.gz": packed(tmp_path / "publisher" / "Imagenet")})
    publisher.files.clear()
    with pytest.raises(ConnectionError, match=r"Instead, http://cs231n.*tiny-imagenet-200\.zip unpacked in"):
        fetch(source)
    publisher.files["I.tar.gz"] = packed(tmp_path / "publisher" / "Imagenet")
    assert len(load("tinyimagenet_crop")) == 3
    fetch(source)
    assert len(load("tinyimagenet_crop")) == 4


def test_an_archive_with_something_else_is_refused(publisher: Publisher, tmp_path: Path, cache: Path) -> None:
    make_odin(tmp_path, 2)
    with pytest.raises(ValueError, match="holds no folder LSUN"):
        fetch(served(publisher, "lsun_crop", {"LSUN.tar.gz": packed(tmp_path / "iSUN")}))
    make_cifar10(tmp_path, 2)
    (tmp_path / "cifar-10-batches-py" / "test_batch").unlink()
    with pytest.raises(ValueError, match="test_batch is not in it"):
        fetch(served(publisher, "cifar10", {"c.tar.gz": packed(tmp_path / "cifar-10-batches-py")}))
    with pytest.raises(ValueError, match="is there but incomplete: move it away"):
        fetch(served(publisher, "cifar10", {"c.tar.gz": packed(tmp_path / "cifar-10-batches-py")}))


def test_what_is_drawn_needs_no_files(cache: Path) -> None:
    assert fetch(SETS["uniform"]) is None


def test_what_no_program_can_fetch_is_explained(cache: Path) -> None:
    with pytest.raises(ValueError, match=r"imagenet30 cannot be fetched by a program.*drive\.google\.com"):
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
        tarfile.TarInfo("/escaped"),
        tarfile.TarInfo("C:\\escaped"),
        link("set/link", "../../escaped", tarfile.SYMTYPE),
        link("set/link", "/etc/passwd", tarfile.SYMTYPE),
        link("set/link", "../escaped", tarfile.LNKTYPE),
        link("set/pipe", "", tarfile.FIFOTYPE),
    ],
    ids=lambda member: f"{member.name} {member.linkname}",
)
def test_a_tar_that_leads_outside_is_refused(bad: tarfile.TarInfo, tmp_path: Path) -> None:
    target = tmp_path / "data" / "set"
    with (
        tar_with(tmp_path / "set.tar.gz", tarfile.TarInfo("set/good"), bad) as archive,
        pytest.raises(ValueError, match=r"set\.tar\.gz (is refused|cannot be unpacked)"),
    ):
        unpack(archive, target)
    assert contents(tmp_path) == ["data", "set.tar.gz"]
    assert contents(tmp_path / "data") == []


@pytest.mark.parametrize("bad", ["../escaped", "set/../../escaped", "/escaped", "..\\escaped", "C:\\escaped"])
def test_a_zip_that_leads_outside_is_refused(bad: str, tmp_path: Path) -> None:
    archive = tmp_path / "set.zip"
    with zipfile.ZipFile(archive, "w") as packing:
        packing.writestr("set/good", "content")
        packing.writestr(bad, "content")
    with pytest.raises(ValueError, match="leads outside of the archive"):
        unpack(archive, tmp_path / "data" / "set")
    assert contents(tmp_path) == ["data", "set.zip"]
    assert contents(tmp_path / "data") == []


def test_a_zip_is_unpacked_whole_over_the_rests_of_a_killed_fetch(tmp_path: Path) -> None:
    make_tiny_imagenet(tmp_path / "publisher", 3)
    archive = tmp_path / "tiny-imagenet-200.zip"
    with zipfile.ZipFile(archive, "w") as packing:
        for path in sorted((tmp_path / "publisher").rglob("*")):
            packing.write(path, path.relative_to(tmp_path / "publisher"))
    rests = tmp_path / "data" / ".tiny-imagenet-200.partial" / "tiny-imagenet-200" / "test" / "images"
    rests.mkdir(parents=True)
    (rests / "half.JPEG").write_bytes(b"half")
    unpack(archive, tmp_path / "data" / "tiny-imagenet-200")
    assert contents(tmp_path / "data") == ["tiny-imagenet-200"]
    assert len(load("tinyimagenet_resize", root=tmp_path / "data")) == 3
