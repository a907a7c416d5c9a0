"""Forged CIFAR batches: each is refused in one line, and nothing of it is run."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pnml_bench.data.cifar import read_cifar10
from pnml_bench.data.selection import Selection

if TYPE_CHECKING:
    from pathlib import Path

PIXELS = np.random.default_rng(0).integers(0, 256, (2, 3072), dtype=np.uint8)


class ForgedArray:
    """Pickled as an array with a state of one's choice."""

    def __init__(self, *state: Any) -> None:
        self.state = state

    def __reduce__(self) -> Any:
        return *np.empty(0).__reduce__()[:2], self.state


class ForgedDtype:
    """Pickled as a dtype with a name and a state of one's choice, such as fields beyond the item."""

    def __init__(self, name: str, *state: Any) -> None:
        self.name, self.state = name, state

    def __reduce__(self) -> Any:
        return np.dtype, (self.name, False, True), self.state


def refused(folder: Path, content: bytes) -> str:
    (folder / "test_batch").write_bytes(content)
    with pytest.raises(ValueError, match="test_batch is not a CIFAR batch") as caught:
        read_cifar10(folder, Selection("test"))
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 1000
    return str(caught.value)


def batch(data: Any, labels: Any = None) -> bytes:
    return pickle.dumps({b"data": data, b"labels": [3, 4] if labels is None else labels}, protocol=2)


UINT8 = np.dtype(np.uint8)
FORGED_DTYPES = [
    ForgedDtype("V8", 3, "|", None, ("a",), {"a": (UINT8, 1 << 30)}, 8, 1, 0),  # a field far beyond the item
    ForgedDtype("V8", 3, "|", None, ("a",), {"a": (UINT8, -(1 << 30))}, 8, 1, 0),
    ForgedDtype("V1", 3, "|", (UINT8, (1 << 40,)), None, None, 1, 1, 0),  # a subarray larger than the item
    ForgedDtype("O8", 3, "|", None, None, None, 8, 8, 63),  # bytes taken for pointers
    ForgedDtype("f8", 3, "<", None, None, None, -1, -1, 0),
]


@pytest.mark.parametrize("dtype", FORGED_DTYPES)
def test_no_dtype_is_made_from_a_file(dtype: ForgedDtype, tmp_path: Path) -> None:
    data = ForgedArray(1, (2, 3072), dtype, 0, PIXELS.tobytes())
    assert "dtype uint8" in refused(tmp_path, batch(data))


@pytest.mark.parametrize(
    "state",
    [
        (1, (2, 3072), UINT8, False, b"short"),
        (1, (2, 3072), UINT8, False, PIXELS.tobytes() + b"\0"),
        (1, (2, 3072), UINT8, False, "ā" * 6144),
        (1, (2, 3072), UINT8, False, [0] * 6144),
        (1, (1 << 40, 3072), UINT8, False, PIXELS.tobytes()),
        (1, (-2, -3072), UINT8, False, PIXELS.tobytes()),
        (1, (6144,), UINT8, False, PIXELS.tobytes()),
        (1, 6144, UINT8, False, PIXELS.tobytes()),
        (1, (2, 3072), "u1", False, PIXELS.tobytes()),
        (1, (2, 3072)),
    ],
)
def test_array_whose_state_is_wrong_is_refused(state: tuple[Any, ...], tmp_path: Path) -> None:
    refused(tmp_path, batch(ForgedArray(*state)))


@pytest.mark.parametrize("labels", [[3, 10], [-1, 3], [3, 1 << 70], [3, "4"], [[3], [4]], (3, 4), "34", {}])
def test_labels_other_than_class_numbers_are_refused(labels: Any, tmp_path: Path) -> None:
    assert "expected 'labels' to be a list of integers from 0 to 9" in refused(tmp_path, batch(PIXELS, labels))


PROGRAMS = {
    "a text of 4 GB": b"\x80\x02X\xff\xff\xff\xffabc.",
    "a call of a call": b"\x80\x02cnumpy\ndtype\n)R)R.",
    "a persistent object": b"\x80\x02Pname\n.",
    "an instance": b"(ios\nsystem\n.",
    "a new object": b"\x80\x02cnumpy\nndarray\n)\x81.",
    "a number of 10,000 digits": b"I" + b"9" * 10_000 + b"\n.",
    "nothing": b"",
}


@pytest.mark.parametrize("program", PROGRAMS.values(), ids=PROGRAMS)
def test_forged_program_is_refused(program: bytes, tmp_path: Path) -> None:
    refused(tmp_path, program)


def test_mutated_batches_are_refused_or_read(tmp_path: Path) -> None:
    """Damage of one byte gives a batch, or one line that names the file."""
    whole, rng = batch(PIXELS), np.random.default_rng(1)
    structure = [row for row in range(len(whole)) if not 300 < row < len(whole) - 100]
    for row in rng.choice(structure, 300):
        changed = bytearray(whole)
        changed[row] = rng.integers(0, 256)
        (tmp_path / "test_batch").write_bytes(changed)
        try:
            assert np.asarray(read_cifar10(tmp_path, Selection("test")).images).shape == (2, 32, 32, 3)
        except ValueError as error:
            assert "test_batch is not a CIFAR batch: " in str(error)  # noqa: PT017 - either is right


def test_large_file_is_not_read(tmp_path: Path) -> None:
    with (tmp_path / "test_batch").open("wb") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(ValueError, match="it has 1,099,511,627,776 bytes, more than 268,435,456"):
        read_cifar10(tmp_path, Selection("test"))
