"""Images that are none, are too large, or cannot be read."""

from __future__ import annotations

import os
import sys
import threading
from io import BytesIO
from typing import TYPE_CHECKING, Any

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

if TYPE_CHECKING:
    from pathlib import Path

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


def test_batch_of_too_many_pixels_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pnml.io.preparation.MAX_BATCH_PIXELS", 1000)
    images = [black_png(20, 20)] * 3
    with pytest.raises(ValueError, match="more than 1,000 pixels together, one of them 20×20: give --size"):
        Preparation().decode(images, strict=False)
    assert len(Preparation(size=20).decode(images, strict=False)) == 3  # chosen, not found
    assert len(Preparation().decode(images[:2], strict=False)) == 2


def test_file_that_cannot_be_read_is_told_from_one_that_does_not_decode(tmp_path: Path) -> None:
    good, bad, gone = write_images(tmp_path, random_images(3, 8))
    bad.write_bytes(b"no picture")
    gone.unlink()
    assert decode([good, bad])[1].tolist() == [0]
    with pytest.raises(FileNotFoundError, match=gone.name):
        decode([good, bad, gone])
    with pytest.raises(FileNotFoundError, match=gone.name):
        Preparation().decode([good, bad, gone], strict=False)


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
