"""One writer: no reader sees half a file, nothing is lost with the power, nothing is left, nothing else is touched."""

from __future__ import annotations

import errno
import os
import stat
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from pnml.backend.files import atomic_path


def write(path: Path, text: str) -> None:
    with atomic_path(path) as partial:
        partial.write_text(text)


def test_readers_never_see_half_a_file_while_threads_save_it(tmp_path: Path) -> None:
    target, done, wrong = tmp_path / "target", threading.Event(), []
    whole = {letter * 200_000 for letter in "abcdefgh"}
    write(target, "a" * 200_000)

    def read() -> None:
        while not done.is_set():
            if (text := target.read_text()) not in whole:
                wrong.append(text)

    readers = [threading.Thread(target=read) for _ in range(2)]
    for reader in readers:
        reader.start()
    with ThreadPoolExecutor(8) as pool:
        saves = [pool.submit(write, target, text) for _ in range(40) for text in sorted(whole)]
    done.set()
    for reader in readers:
        reader.join()
    assert len(saves) == 320
    assert [save.exception() for save in saves if save.exception()] == []
    assert wrong == []
    assert list(tmp_path.iterdir()) == [target]


def test_the_file_is_flushed_before_it_gets_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target, flushed = tmp_path / "target", []

    def flush(descriptor: int) -> None:
        flushed.append((os.fstat(descriptor).st_ino, target.exists(), os.fstat(descriptor).st_size))

    monkeypatch.setattr(os, "fsync", flush)
    write(target, "all of it")
    assert flushed == [(target.stat().st_ino, False, len("all of it"))]


@pytest.mark.parametrize(("number", "named"), [(errno.EIO, None), (errno.ENOSPC, "target")])
def test_a_disk_that_fails_is_an_error(
    number: int, named: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flush(_descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    target = tmp_path / "target"
    target.write_text("old")
    monkeypatch.setattr(os, "fsync", flush)
    with pytest.raises(OSError, match=os.strerror(number)) as caught:
        write(target, "new")
    assert caught.value.filename == (named and str(target))
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o444])
def test_a_file_keeps_its_mode(tmp_path: Path, mode: int) -> None:
    target = tmp_path / "target"
    target.write_text("old")
    target.chmod(mode)
    with atomic_path(target) as partial:
        assert stat.S_IMODE(partial.stat().st_mode) == 0o600  # nobody else reads it meanwhile
        partial.write_text("new")
    assert (stat.S_IMODE(target.stat().st_mode), target.read_text()) == (mode, "new")


@pytest.mark.parametrize(("umask", "mode"), [(0o022, 0o644), (0o077, 0o600)])
def test_a_new_file_has_the_mode_that_the_umask_grants(tmp_path: Path, umask: int, mode: int) -> None:
    before = os.umask(umask)
    try:
        write(tmp_path / "target", "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "target").stat().st_mode) == mode


def test_a_link_stays_and_the_file_that_it_points_to_is_replaced(tmp_path: Path) -> None:
    folder, link = tmp_path / "elsewhere", tmp_path / "link"
    folder.mkdir()
    link.symlink_to(Path("elsewhere", "file"))
    for text in ("first, where the link points to nothing yet", "second"):
        with atomic_path(link) as partial:
            assert partial.parent == folder
            partial.write_text(text)
        assert (folder / "file").read_text() == text
    assert link.is_symlink()
    assert sorted(tmp_path.rglob("*")) == [folder, folder / "file", link]


def test_a_link_to_itself_is_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("link")
    with pytest.raises(OSError, match="link"):
        write(tmp_path / "link", "new")
    assert list(tmp_path.iterdir()) == [tmp_path / "link"]


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ValueError, match="pipe, which is no regular file: give the path of a file"):
        write(tmp_path / "pipe", "new")
    with pytest.raises(ValueError, match="which is a folder: give the path of a file"):
        write(tmp_path, "new")
    with pytest.raises(FileNotFoundError, match=rf"there is no folder .*absent: mkdir -p {tmp_path}/absent"):
        write(tmp_path / "absent" / "file", "new")
    assert stat.S_ISFIFO((tmp_path / "pipe").stat().st_mode)


def test_a_temporary_file_is_deleted_a_day_after_its_writer_died_and_nothing_else_is(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("theirs")
    old, link, pipe, young = (tmp_path / f".a.pnml-{number}.partial" for number in range(4))
    theirs = tmp_path / ".a.1.partial"
    for file in (old, young, theirs):
        file.write_text("half")
    link.symlink_to(tmp_path / "precious")
    os.mkfifo(pipe)
    for file in (old, theirs, pipe, tmp_path / "precious"):
        os.utime(file, (0, 0))
    before = {*tmp_path.iterdir()}
    with atomic_path(tmp_path / "target") as partial:
        write(tmp_path / "another", "new")
        partial.write_text("whole")
    assert before - {*tmp_path.iterdir()} == {old}
    assert (tmp_path / "target").read_text() == "whole"
    assert (tmp_path / "precious").read_text() == "theirs"


def test_a_planted_link_is_never_written_through(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name cannot be guessed; if it could, the file would not be created."""
    precious = tmp_path / "precious"
    precious.write_text("theirs")
    (tmp_path / ".target.pnml-0123456789abcdef.partial").symlink_to(precious)
    monkeypatch.setattr("secrets.token_hex", lambda _count: "0123456789abcdef")
    with pytest.raises(FileExistsError):
        write(tmp_path / "target", "new")
    assert precious.read_text() == "theirs"


def test_a_name_may_be_as_long_as_the_file_system_allows(tmp_path: Path) -> None:
    write(tmp_path / ("n" * 255), "new")
    write(tmp_path / ("é" * 127), "new")
    assert len(list(tmp_path.iterdir())) == 2
