from __future__ import annotations

import os
import pickle
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pnml_bench.data.cifar import read_cifar10, read_cifar100
from pnml_bench.data.selection import Selection

from .layouts import make_cifar10, make_cifar100, random_images

if TYPE_CHECKING:
    from pathlib import Path


def write_batch(folder: Path, batch: object, protocol: int = 2) -> Path:
    path = folder / "test_batch"
    path.write_bytes(pickle.dumps(batch, protocol=protocol))
    return path


def test_cifar10_keeps_pixels_labels_and_batch_order(tmp_path: Path) -> None:
    make_cifar10(tmp_path, 7)
    folder = tmp_path / "cifar-10-batches-py"
    test = read_cifar10(folder, Selection("test"))
    train = read_cifar10(folder, Selection("train"))
    assert np.array_equal(np.asarray(test.images), random_images(7, 32, seed=0))
    assert np.array_equal(
        np.asarray(train.images), np.concatenate([random_images(7, 32, seed) for seed in range(1, 6)])
    )
    stored = [pickle.loads((folder / f"data_batch_{i}").read_bytes())[b"labels"] for i in range(1, 6)]  # noqa: S301 (written above)
    assert train.labels is not None
    assert train.labels.tolist() == list(chain.from_iterable(stored))
    assert train.labels.dtype == np.int64


def test_cifar100_has_fine_labels(tmp_path: Path) -> None:
    make_cifar100(tmp_path, 9)
    folder = tmp_path / "cifar-100-python"
    contents = read_cifar100(folder, Selection("train", limit=4))
    stored = pickle.loads((folder / "train").read_bytes())[b"fine_labels"]  # noqa: S301 (written above)
    assert contents.labels is not None
    assert contents.labels.tolist() == [stored[row] for row in (0, 2, 4, 6)]
    assert np.array_equal(np.asarray(contents.images), random_images(9, 32, seed=11)[[0, 2, 4, 6]])
    assert contents.total == 9


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4])
def test_reads_every_pickle_protocol(tmp_path: Path, protocol: int) -> None:
    data = np.arange(2 * 3072, dtype=np.uint32).astype(np.uint8).reshape(2, 3072)
    write_batch(tmp_path, {b"data": data, b"labels": [3, 4]}, protocol)
    contents = read_cifar10(tmp_path, Selection("test"))
    assert np.array_equal(np.asarray(contents.images), data.reshape(2, 3, 32, 32).transpose(0, 2, 3, 1))


class Exploit:
    """Calls a function when unpickled."""

    def __init__(self, function: Any, *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> Any:
        return self.call


def test_malicious_batch_raises_and_runs_nothing(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    batch = {b"data": np.zeros((1, 3072), np.uint8), b"labels": [0], b"extra": Exploit(os.system, f"touch {marker}")}
    path = write_batch(tmp_path, batch)
    with pytest.raises(ValueError, match=r"test_batch is not a CIFAR batch: it refers to (posix|nt)\.system"):
        read_cifar10(tmp_path, Selection("test"))
    assert not marker.exists()
    pickle.loads(path.read_bytes())  # noqa: S301 (shows that plain pickle does run it)
    assert marker.exists()


@pytest.mark.parametrize(
    ("batch", "problem"),
    [
        ([1, 2], "expected a dict with 'data' and 'labels'"),
        ({b"data": np.zeros((1, 3072), np.uint8)}, "expected a dict with 'data' and 'labels'"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": [0, 1]}, r"dtype uint8 and shape \(2, 3072\)"),
        ({b"data": np.zeros((1, 3072)), b"labels": [0]}, "of dtype uint8"),
        ({b"data": [1], b"labels": [0]}, "of dtype uint8"),
    ],
)
def test_pickle_that_is_not_a_batch_raises(tmp_path: Path, batch: object, problem: str) -> None:
    write_batch(tmp_path, batch)
    with pytest.raises(ValueError, match=problem):
        read_cifar10(tmp_path, Selection("test"))


def test_truncated_or_missing_batch_raises(tmp_path: Path) -> None:
    make_cifar10(tmp_path, 3)
    folder = tmp_path / "cifar-10-batches-py"
    path = folder / "test_batch"
    path.write_bytes(path.read_bytes()[:500])
    with pytest.raises(ValueError, match="test_batch is not a CIFAR batch"):
        read_cifar10(folder, Selection("test"))
    path.unlink()
    with pytest.raises(FileNotFoundError):
        read_cifar10(folder, Selection("test"))
