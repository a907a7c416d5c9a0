"""Images that are none, are too large, or cannot be read."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import EpsImagePlugin, Image

import pnml.io.decode
from bench.data.layouts import random_images, write_images
from image_bytes import EPS, black_png, tiff
from pnml.io.decode import FORMATS, PixelGate, UndecodableError, in_threads, read_image, resize_to
from pnml.io.images import image_files, open_images
from pnml.io.preparation import Preparation
from pnml_bench.data.lazy_images import decode

# Other formats that Pillow can open.
FOREIGN = {"ICO", "TGA", "SGI", "PCX", "MSP", "JPEG2000", "ICNS", "DDS", "QOI"}


@pytest.mark.skipif(os.name == "nt", reason="the program is a shell script")
@pytest.mark.parametrize("as_bytes", [False, True])
def test_postscript_starts_no_program(as_bytes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: FBT001
    program, started = tmp_path / "gs", tmp_path / "started"
    program.write_text(f"#!/bin/sh\necho > {started}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(EpsImagePlugin, "gs_binary", None, raising=False)  # where newer Pillow remembers it
    picture = tmp_path / "x.png"
    picture.write_bytes(EPS)
    with pytest.raises(UndecodableError, match="does not decode as an image"):
        read_image(EPS if as_bytes else picture)
    assert not started.exists()


@pytest.mark.parametrize("kind", sorted(FOREIGN))
def test_other_formats_are_not_read_under_a_known_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    try:
        Image.new("1" if kind == "MSP" else "RGB", (32, 32)).save(path, format=kind)
    except (KeyError, OSError):
        pytest.skip(f"this Pillow does not write {kind}")
    with pytest.raises(UndecodableError):
        read_image(path)


@pytest.mark.parametrize("kind", FORMATS)
def test_known_formats_are_read_under_any_name(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    Image.new("RGB", (3, 2), (255, 255, 255)).save(path, format=kind)
    assert read_image(path).tolist() == [[[255] * 3] * 3] * 2


LARGE = {
    "png": black_png(9000, 9000),
    "pgm": b"P5\n60000 60000\n255\n",
    "bmp": b"BM"
    + bytes(8)
    + (54).to_bytes(4, "little")
    + (40).to_bytes(4, "little")
    + (30000).to_bytes(4, "little")
    + (30000).to_bytes(4, "little")
    + b"\1\0\x18\0"
    + bytes(24),
    "gif": b"GIF89a\xff\xff\xff\xff\0\0\0,\0\0\0\0\xff\xff\xff\xff\0\2\0",
    "tiff": tiff(np.broadcast_to(np.uint8(0), (30_000, 30_000)), content=bytes(8)),
}


@pytest.mark.parametrize("kind", LARGE)
@pytest.mark.filterwarnings("ignore::PIL.Image.DecompressionBombWarning")
def test_image_with_too_many_pixels_is_refused(kind: str) -> None:
    assert len(LARGE[kind]) < 20_000
    with pytest.raises(UndecodableError, match="pixels"):
        read_image(LARGE[kind])


def test_refused_pixels_are_counted() -> None:
    with pytest.raises(UndecodableError, match=r"\(9,000×9,000 pixels, more than 67,108,864: scale it down\)"):
        read_image(black_png(9000, 9000))


@pytest.mark.skipif(sys.platform != "linux", reason="peak memory is read in kilobytes")
def test_four_small_files_take_no_gigabytes(tmp_path: Path) -> None:
    """Four PNGs of about 20 KB, with 168 million pixels each, cost next to nothing."""
    content = black_png(12_000, 14_000)
    assert len(content) < 30_000
    for number in range(4):
        (tmp_path / f"{number}.png").write_bytes(content)
    program = (
        "import resource, sys, warnings; from pathlib import Path; import PIL.Image\n"
        "from pnml_bench.data.lazy_images import decode\n"
        "warnings.simplefilter('ignore')\n"
        "peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "before = peak()\n"
        "try: decode(sorted(Path(sys.argv[1]).iterdir()))\n"
        "except ValueError as error: print(error, peak() - before < 100_000)"
    )
    done = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True)
    assert done.stdout == "none of the 4 images decodes True\n"


def test_threads_decode_no_more_pixels_than_the_gate_has_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    gate, seen, lock = PixelGate(capacity=100), [], threading.Lock()
    monkeypatch.setattr(pnml.io.decode, "_GATE", gate)
    monkeypatch.setattr(pnml.io.decode, "_THREADS", 8)

    def note(image: Any) -> Any:
        with lock:
            seen.append(gate.admitted)
        return image.resize((2, 2))

    encoded = [black_png(6, 6)] * 40 + [black_png(20, 20)] * 5  # 36 pixels, and 400, which go alone
    assert len(list(in_threads(lambda one: read_image(one, note), encoded))) == 45
    assert max(seen) <= 100
    assert gate.admitted == 0


def test_gate_has_room_again_after_an_error() -> None:
    gate = PixelGate(capacity=10)
    with pytest.raises(KeyError), gate.admit(10):
        raise KeyError
    with gate.admit(10):
        assert gate.admitted == 10


def test_batch_of_too_many_pixels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pnml.io.preparation.MAX_BATCH_PIXELS", 1000)
    images = [black_png(20, 20)] * 3
    with pytest.raises(ValueError, match="more than 1,000 pixels together, one of them 20×20: give --size"):
        Preparation().decode(images, strict=False)
    assert len(Preparation(size=20).decode(images, strict=False)) == 3  # chosen, not found
    assert len(Preparation().decode(images[:2], strict=False)) == 2


def test_results_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pnml.io.decode, "_THREADS", 2)
    done: list[int] = []

    def note(number: int) -> int:
        done.append(number)
        return number

    results = in_threads(note, range(1000))
    assert next(results) == 0
    assert len(done) <= 5
    assert list(results) == list(range(1, 1000))


def test_file_that_cannot_be_read_is_told_from_one_that_does_not_decode(tmp_path: Path) -> None:
    good, bad, gone = write_images(tmp_path, random_images(3, 8))
    bad.write_bytes(b"no picture")
    gone.unlink()
    assert decode([good, bad])[1].tolist() == [0]
    with pytest.raises(FileNotFoundError, match=gone.name):
        decode([good, bad, gone])
    with pytest.raises(FileNotFoundError, match=gone.name):
        Preparation().decode([good, bad, gone], strict=False)


def test_file_that_breaks_off_with_an_error_of_the_disk_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = write_images(tmp_path, random_images(1, 64))

    def failing_open(self: Path, *_: object) -> Any:
        file = open(self, "rb")  # noqa: PTH123, SIM115 - Path.open is replaced
        return FailingFile(file)

    class FailingFile:
        def __init__(self, file: Any) -> None:
            self.file = file

        def __enter__(self) -> Any:
            return self

        def __exit__(self, *_: object) -> None:
            self.file.close()

        def read(self, size: int = -1) -> bytes:
            if self.file.tell() > 40:
                raise OSError(errno.EIO, "Input/output error")
            content: bytes = self.file.read(size)
            return content

        def __getattr__(self, name: str) -> Any:
            return getattr(self.file, name)

    monkeypatch.setattr(Path, "open", failing_open)
    with pytest.raises(OSError, match=r"Input/output error: '.*00000\.png'"):
        read_image(path)


def test_link_to_nothing_is_not_left_out(tmp_path: Path) -> None:
    write_images(tmp_path, random_images(1, 8))
    (tmp_path / "link.png").symlink_to(tmp_path / "nowhere.png")
    assert [file.name for file in image_files(tmp_path)] == ["00000.png", "link.png"]
    with pytest.raises(FileNotFoundError, match=r"link\.png"):
        [*map(read_image, image_files(tmp_path))]


def test_links_to_folders_are_not_followed_and_pipes_not_opened(tmp_path: Path) -> None:
    write_images(tmp_path / "a", random_images(2, 8))
    (tmp_path / "a" / "loop").symlink_to(tmp_path)
    (tmp_path / "a" / "folder.png").mkdir()
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "a" / "pipe.png")
    assert [file.name for file in image_files(tmp_path)] == ["00000.png", "00001.png"]


def test_folder_that_cannot_be_listed_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_images(tmp_path, random_images(1, 8))
    write_images(tmp_path / "closed", random_images(1, 8))
    scandir = os.scandir

    def refuse(path: Any = ".") -> Any:
        if Path(path).name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(PermissionError, match="closed"):
        open_images(tmp_path)


@pytest.mark.skipif(sys.platform != "linux", reason="other systems have no such names")
def test_name_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (picture,) = write_images(tmp_path / "café", random_images(1, 8))
    assert [ids.tolist() for ids, _ in open_images(tmp_path).read(0, 10)] == [["café/00000.png"]]
    os.rename(picture, os.fsencode(picture.parent) + b"/caf\xe9.png")  # noqa: PTH104 - bytes
    with pytest.raises(ValueError, match=r"the file b'caf\\xc3\\xa9/caf\\xe9\.png' in .* is not UTF-8.* rename it"):
        open_images(tmp_path)


def test_damaged_images_decode_or_are_refused() -> None:
    """Whatever a decoder raises for damaged content is one kind of error."""
    rng = np.random.default_rng(0)
    for kind in FORMATS:
        file = BytesIO()
        Image.fromarray(random_images(1, 16)[0]).save(file, format=kind)
        whole = file.getvalue()
        for _ in range(60):
            content = bytearray(whole[: rng.integers(1, len(whole) + 1)] if rng.random() < 0.3 else whole)
            for row in rng.integers(0, min(len(content), 300), rng.integers(1, 5)):
                content[row] = rng.integers(0, 256)
            try:
                assert read_image(bytes(content), resize_to(4)).shape == (4, 4, 3)
            except UndecodableError as error:
                assert f"{len(content)} bytes does not decode" in str(error)  # noqa: PT017 - either is right
