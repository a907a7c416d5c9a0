"""Reading embeddings and heads: every format returns the rows that were written."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file
from safetensors.torch import save_file as save_tensors

import pnml
import pnml.io.embeddings
from pnml.io.embeddings import open_embeddings
from pnml.io.head import read_head
from pnml.io.numpy_files import open_npy

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

Rows = np.ndarray[Any, Any]


def npz(path: Path, rows: Rows, ids: list[str]) -> None:
    np.savez(path, embedding=rows, id=np.array(ids))


def compressed(path: Path, rows: Rows, ids: list[str]) -> None:
    np.savez_compressed(path, id=np.array(ids), anything=rows)


def fixed_lists(path: Path, rows: Rows, ids: list[str]) -> None:
    column = pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1])
    pq.write_table(pa.table({"id": ids, "embedding": column}), path, row_group_size=7)


def lists(path: Path, rows: Rows, ids: list[str]) -> None:
    pq.write_table(pa.table({"embedding": pa.array(rows.tolist()), "id": ids}), path, row_group_size=4)


def wide(path: Path, rows: Rows, ids: list[str]) -> None:
    columns = {f"f{number}": column for number, column in enumerate(rows.T)}
    pq.write_table(pa.table({"label": list(range(len(rows))), **columns, "id": ids}), path, row_group_size=5)


def csv_file(path: Path, rows: Rows, ids: list[str]) -> None:
    lines = (
        ",".join([name, "text", *(repr(float(cell)) for cell in row)]) for name, row in zip(ids, rows, strict=True)
    )
    path.write_text("\n".join(["id,kind,f0,f1,f2", *lines]) + "\n")


WRITERS: dict[str, tuple[str, Callable[[Path, Rows, list[str]], None]]] = {
    "npz": (".npz", npz),
    "compressed npz": (".npz", compressed),
    "fixed-size lists": (".parquet", fixed_lists),
    "lists": (".parquet", lists),
    "wide": (".parquet", wide),
    "csv": (".csv", csv_file),
}


@pytest.mark.parametrize("kind", WRITERS)
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(count=st.integers(1, 23), size=st.integers(1, 9), share=st.floats(0, 0.999))
def test_read_returns_rows_and_ids_in_batches(tmp_path: Path, kind: str, count: int, size: int, share: float) -> None:
    suffix, write = WRITERS[kind]
    path = tmp_path / f"rows{suffix}"
    rows = np.random.default_rng(count).normal(size=(count, 3)).astype("f" if count % 2 else "d")
    ids = [f"row {number}" for number in range(count)]
    write(path, rows, ids)
    reader = open_embeddings(path).reader
    assert (reader.count, reader.width) == (count, 3)
    start = int(share * count)
    batches = list(reader.read(start, size))
    assert [len(batch) for _, batch in batches] == [min(size, count - first) for first in range(start, count, size)]
    assert np.concatenate([batch for _, batch in batches]).tolist() == rows[start:].tolist()
    assert [name for names, _ in batches for name in names] == ids[start:]


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("kind", ["<f4", ">f8", "<f2", "u1"])
def test_npy_of_any_layout_is_read(order: Any, kind: str, tmp_path: Path) -> None:
    rows = np.asarray(np.arange(12).reshape(4, 3), dtype=kind, order=order)
    np.save(tmp_path / "rows.npy", rows)
    batches = list(open_npy(tmp_path / "rows.npy").read(1, 2))
    assert [numbers.tolist() for numbers, _ in batches] == [[1, 2], [3]]
    assert [batch.tolist() for _, batch in batches] == [rows[1:3].tolist(), rows[3:].tolist()]
    assert all(batch.dtype.isnative for _, batch in batches)


def test_chunks_are_bounded_and_carry_positions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pnml.io.embeddings, "CHUNK_BYTES", 8 * 3 * 4)
    np.save(tmp_path / "rows.npy", np.arange(30.0).reshape(10, 3))
    samples = open_embeddings(tmp_path / "rows.npy")
    chunks = list(samples.chunks(start=5))
    assert [(chunk.stop, chunk.ids.tolist()) for chunk in chunks] == [(9, [5, 6, 7, 8]), (10, [9])]
    assert all((chunk.positions == chunk.ids).all() for chunk in chunks)
    assert chunks[1].embeddings.tolist() == [[27, 28, 29]]


def parquet(**columns: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table(columns), path)


def npz_of(**arrays: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, **arrays)


def npy_of(rows: NDArray[Any]) -> Callable[[Path], None]:
    return lambda path: np.save(path, rows, allow_pickle=True)


def truncated(write: Callable[[Path], None], share: float) -> Callable[[Path], None]:
    def make(path: Path) -> None:
        write(path)
        content = path.read_bytes()
        path.write_bytes(content[: int(len(content) * share)])

    return make


def short_npz(path: Path) -> None:
    """Write an archive whose array header claims more rows than it has."""
    np.save(path.with_suffix(".npy"), np.zeros((100, 3)))
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("embedding.npy", path.with_suffix(".npy").read_bytes()[:1000])


def garbage(path: Path) -> None:
    path.write_bytes(b"garbage" * 30)


two = np.zeros((2, 3))
BAD: list[tuple[str, Callable[[Path], None], str]] = [
    ("rows.txt", garbage, "expected one of .npy, .npz, .csv, .parquet"),
    ("rows.npy", Path.touch, "no whole .npy file"),
    ("rows.npy", npy_of(np.zeros(3)), r"float64 of shape \(3,\): expected numbers of shape \(rows, features\)"),
    ("rows.npy", npy_of(np.array([["a"]])), "expected numbers"),
    ("rows.npy", npy_of(np.array([[None]])), "no whole .npy file"),
    ("rows.npy", npy_of(np.zeros((0, 3))), "is empty: 0 rows of 3 features"),
    ("rows.npz", truncated(npz_of(embedding=two), 0.7), "no whole .npz file"),
    ("rows.npz", short_npz, "rows.npz has 1,000 bytes, and its header says that its rows take 2,400: write the"),
    ("rows.npz", npz_of(train=two, test=two), r"the arrays \['train', 'test'\]: name the one to use 'embedding'"),
    ("rows.npz", npz_of(embedding=two, id=np.arange(3)), r"'id' in .* has shape \(3,\).*2 rows"),
    ("rows.npz", npz_of(embedding=np.asfortranarray(np.zeros((3, 2)))), "column by column: .*ascontiguousarray"),
    ("rows.npz", npz_of(embedding=two, id=np.array(["a", None])), "holds Python objects"),
    ("rows.parquet", truncated(parquet(x=[1.0]), 0.5), "no whole parquet file"),
    ("rows.parquet", parquet(name=["a"]), r"neither a list column 'embedding' nor .* only name \(string\)"),
    ("rows.parquet", parquet(embedding=[1.0]), "'embedding' in .* is double: expected a list"),
    ("rows.parquet", parquet(embedding=[[1.0, 2.0], [1.0]]), "row 1 of .* has 1 features where row 0 has 2"),
    ("rows.parquet", parquet(embedding=pa.array([], pa.list_(pa.float32()))), "is empty: 0 rows"),
    ("rows.parquet", parquet(x=[1.0, 2.0], id=["a", None]), "row 1, counted from 0, has no id"),
]


@pytest.mark.parametrize(("name", "write", "message"), BAD)
def test_unreadable_embeddings_raise_with_file_and_reason(
    name: str, write: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    write(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        list(open_embeddings(tmp_path / name).chunks())


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("biased", [True, False])
def test_read_head_returns_weight_and_bias(suffix: str, biased: bool, tmp_path: Path) -> None:  # noqa: FBT001
    arrays = {"weight": np.arange(6.0).reshape(2, 3)} | ({"bias": np.array([1.0, 2.0])} if biased else {})
    path = tmp_path / f"head{suffix}"
    if suffix == ".npz":
        np.savez(path, **arrays)
    else:
        save_file(arrays, path)
    weight, bias = read_head(path)
    assert weight.tolist() == arrays["weight"].tolist()
    assert (None if bias is None else bias.tolist()) == ([1.0, 2.0] if biased else None)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_read_head_of_any_precision(dtype: torch.dtype, tmp_path: Path) -> None:
    weight = torch.linspace(-3, 1000, 6).reshape(2, 3).to(dtype)
    save_tensors({"weight": weight}, tmp_path / "head.safetensors")
    assert read_head(tmp_path / "head.safetensors")[0].tolist() == weight.double().tolist()


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_read_head_reads_no_other_array(suffix: str, tmp_path: Path) -> None:
    arrays = {"weight": np.ones((2, 3)), "count": np.array([5]), "names": np.array([1], dtype=np.uint8)}
    path = tmp_path / f"head{suffix}"
    npz_of(**arrays, objects=np.array([None]))(path) if suffix == ".npz" else save_file(arrays, path)
    assert read_head(path)[0].tolist() == [[1.0] * 3] * 2
    weight = np.arange(6.0).reshape(2, 3)
    pnml.Detector(weight, np.ones(2)).fit(np.eye(3)).save(tmp_path / "detector.safetensors")
    assert read_head(tmp_path / "detector.safetensors")[0].tolist() == weight.tolist()


BAD_HEADS: list[tuple[str, Callable[[Path], None], str]] = [
    ("head.txt", garbage, "expected one of .npz, .safetensors"),
    ("head.pt", garbage, "is a file of torch.save"),
    ("head.npz", npz_of(kernel=two, offset=two), "holds kernel, offset: expected the last layer's 'weight'"),
    ("head.safetensors", garbage, "no whole safetensors file"),
    (
        "head.safetensors",
        lambda path: save_tensors({"weight": torch.zeros(2, 3, dtype=torch.int64)}, path),
        "'weight' of .* holds I64 numbers: expected one of F64, F32, F16 or BF16",
    ),
]


@pytest.mark.parametrize(("name", "write", "message"), BAD_HEADS)
def test_unreadable_heads_raise_with_file_and_reason(
    name: str, write: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    write(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        read_head(tmp_path / name)
