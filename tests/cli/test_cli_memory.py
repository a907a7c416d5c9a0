"""Memory stays within the budget whatever the numbers of rows, features and classes are, and however long ids are."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pnml import Detector
from pnml.engines.budget import BUDGET, within_budget
from pnml.io.embeddings import open_embeddings

from .cli_files import fails, succeeds, table_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

PEAK = """
import json, resource, sys
from pnml.cli import app

try:
    app()
except SystemExit as done:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(json.dumps({"code": done.code, "bytes": peak * (1 if sys.platform == "darwin" else 1024)}), file=sys.stderr)
"""
linux_only = pytest.mark.skipif(sys.platform == "win32", reason="needs the module resource")


def peak_of(*words: object) -> int:
    """Return the most memory that a command takes, in bytes."""
    command = [sys.executable, "-c", PEAK, *map(str, words)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stderr.splitlines()
    found: dict[str, int] = json.loads(said[-1])
    assert found["code"] == 0, said
    return found["bytes"]


def normal(*shape: int, seed: int = 0) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def detector_of(folder: Path, classes: int, features: int) -> Path:
    weight, bias = normal(classes, features, seed=1), normal(classes, seed=2)
    detector = Detector(weight, bias).fit(normal(2 * classes, features, seed=3))
    detector.calibrate(normal(99, features, seed=4))
    detector.save(folder / "detector.safetensors")
    np.savez(folder / "head.npz", weight=weight, bias=bias)
    return folder / "detector.safetensors"


@linux_only
@pytest.mark.parametrize("command", ["score", "fit"])
def test_memory_of_many_rows_and_classes_is_within_the_budget(command: str, tmp_path: Path) -> None:
    detector = detector_of(tmp_path, classes=1000, features=8)
    words: dict[str, tuple[object, ...]] = {
        "score": ("score", detector, "--out", tmp_path / "scores.csv"),
        "fit": ("fit", "--head", tmp_path / "head.npz", "--out", tmp_path / "new.safetensors"),
    }
    np.save(tmp_path / "few.npy", normal(99, 8))
    np.save(tmp_path / "many.npy", normal(30_000, 8))
    few, many = (peak_of(*words[command], "--embeddings", tmp_path / f"{name}.npy") for name in ("few", "many"))
    assert many - few < BUDGET


def write_rows(path: Path, rows: NDArray[np.float32], ids: list[Any], **options: Any) -> Path:
    lists = pa.FixedSizeListArray.from_arrays(rows.ravel(), rows.shape[1])
    pq.write_table(pa.table({"id": ids, "embedding": lists}), path, **options)
    return path


@linux_only
def test_memory_of_one_long_id_among_many_is_within_the_budget(tmp_path: Path) -> None:
    detector, rows = detector_of(tmp_path, classes=3, features=4), normal(4000, 4)
    ids = [f"row {number}" for number in range(4000)]
    few = write_rows(tmp_path / "few.parquet", rows, ids)
    long = write_rows(tmp_path / "long.parquet", rows, [*ids[:17], "x" * 300_000, *ids[18:]])
    words = ("score", detector, "--out", tmp_path / "scores.parquet", "--embeddings")
    baseline = peak_of(*words, few)
    assert peak_of(*words, long) - baseline < BUDGET
    table = table_of(tmp_path / "scores.parquet")
    assert table["id"] == [*ids[:17], "x" * 300_000, *ids[18:]]
    np.testing.assert_allclose(table["regret"], np.asarray(Detector.load(detector).score(rows)), rtol=1e-5)


def test_ids_that_fill_the_memory_are_refused(tmp_path: Path) -> None:
    detector, rows = detector_of(tmp_path, classes=3, features=4), normal(4000, 4)
    ids = ["y" * 3_000_000] * 40 + [f"row {number}" for number in range(3960)]  # a small file: it holds the text once
    path = write_rows(tmp_path / "same.parquet", rows, ids)
    said = fails("score", detector, "--embeddings", path, "--out", tmp_path / "scores.csv")
    assert "characters, where at most 33,554,432 are expected: shorten them" in said


@pytest.mark.parametrize("kind", [".npz", ".parquet", ".csv"])
def test_long_ids_are_read_in_small_pieces_and_come_out_whole(kind: str, tmp_path: Path) -> None:
    detector, rows = detector_of(tmp_path, classes=3, features=4), normal(300, 4)
    ids = [f"{number} " + "ä" * 40_000 for number in range(300)]
    path = tmp_path / f"rows{kind}"
    if kind == ".npz":
        ids = [name[:4000] for name in ids]  # NumPy's text takes four bytes for a character
        np.savez(path, embedding=rows, id=np.array(ids))
    elif kind == ".parquet":
        write_rows(path, rows, ids)
    else:
        lines = [f"{name},{','.join(map(str, row))}" for name, row in zip(ids, rows, strict=True)]
        path.write_text("\n".join(["id,a,b,c,d", *lines]), encoding="utf-8")
    samples = within_budget(open_embeddings(path), 3)
    chunks = list(samples.chunks())
    assert [name for chunk in chunks for name in chunk.ids] == ids
    assert 8 * max(sum(len(name.encode()) for name in chunk.ids) for chunk in chunks) <= BUDGET // 2
    assert all(chunk.ids.dtype == object for chunk in chunks)
    succeeds("score", detector, "--embeddings", path, "--out", tmp_path / "scores.parquet")
    table = table_of(tmp_path / "scores.parquet")
    assert table["id"] == ids
    np.testing.assert_allclose(table["regret"], np.asarray(Detector.load(detector).score(rows)), rtol=1e-5)


@pytest.mark.parametrize(("features", "classes"), [(1, 2), (8, 1000), (512, 10), (2048, 20_000), (8, 1_000_000)])
def test_chunks_shrink_with_features_and_classes(features: int, classes: int, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", normal(3, features))
    samples = within_budget(open_embeddings(tmp_path / "rows.npy"), classes)
    logits, rows = (8 * samples.chunk_rows * number for number in (classes, features))
    assert samples.chunk_rows >= 1
    assert 4 * (logits + rows) <= BUDGET


def test_line_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"id,a\n" + b"1" * (1 << 25))
    with pytest.raises(ValueError, match=r"line 2 of .* has 16,777,216 bytes or more"):
        open_embeddings(tmp_path / "rows.csv")
