from __future__ import annotations

import csv
import errno
import struct
import zipfile
import zlib

import pytest

from pnml.backend.read_errors import names_its_file, naming_file


@pytest.mark.parametrize(
    "error",
    [
        KeyError("member"),
        IndexError("row"),
        TypeError("text"),
        MemoryError("45 GiB"),
        RuntimeError("password"),
        NotImplementedError("method 99"),
        RecursionError("too deep"),
        BufferError("memory"),
        OverflowError("too large"),
        EOFError("end"),
        zlib.error("stream"),
        csv.Error("field"),
        struct.error("bytes"),
        zipfile.BadZipFile("archive"),
        ValueError("odd"),
        OSError("Couldn't deserialize thrift"),
        OSError(errno.EINVAL, "Invalid argument"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_content_raises_becomes_an_error_that_names_the_file(error: Exception) -> None:
    with (
        pytest.raises(ValueError, match=r"^some/rows\.npz cannot be read \(.*write it again$") as caught,
        naming_file("some/rows.npz"),
    ):
        raise error
    assert caught.value.__cause__ is error
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "error",
    [
        AttributeError("ours"),
        AssertionError("ours"),
        FileNotFoundError(errno.ENOENT, "No such file"),
        OSError(errno.ENOSPC, "No space left on device"),
        ValueError("line 3 of rows.npz holds nothing"),
        KeyboardInterrupt(),
    ],
    ids=lambda error: type(error).__name__,
)
def test_other_errors_pass_as_they_are(error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, naming_file("some/rows.npz"):
        raise error
    assert caught.value is error


def test_a_function_of_a_path_names_it() -> None:
    @names_its_file
    def read(path: str, key: str) -> int:
        return {"a": 1}[key]

    assert read("rows.npz", "a") == 1
    with pytest.raises(ValueError, match=r"rows\.npz cannot be read \(KeyError: 'b'\)"):
        read("rows.npz", "b")
