"""Features of earlier layers in files: read beside the embeddings, in chunks, in the order that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import pnml.io.embeddings
from pnml.io.embeddings import open_embeddings

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

Rows = np.ndarray[Any, Any]

ROWS = 23
RNG = np.random.default_rng(0)
EMBEDDINGS = RNG.normal(size=(ROWS, 3)).astype(np.float32)
FEATURES = {
    "stem": RNG.normal(size=(ROWS, 4)).astype(np.float32),
    "block.1": RNG.normal(size=(ROWS, 2)).astype(np.float32),
}


def lists(rows: Rows, *, fixed: bool) -> pa.Array:
    return pa.FixedSizeListArray.from_arrays(pa.array(rows.ravel()), rows.shape[1]) if fixed else pa.array([*rows])


def npz(path: Path) -> None:
    arrays: dict[str, Any] = {f"features.{name}": rows for name, rows in FEATURES.items()}
    np.savez(path, **arrays, embedding=EMBEDDINGS)


def npz_of_any_name(path: Path) -> None:
    arrays: dict[str, Any] = {f"features.{name}": rows for name, rows in FEATURES.items()}
    np.savez_compressed(path, penultimate=EMBEDDINGS, **arrays)


def fixed_lists(path: Path) -> None:
    columns = {f"features.{name}": lists(rows, fixed=True) for name, rows in FEATURES.items()}
    pq.write_table(pa.table({**columns, "embedding": lists(EMBEDDINGS, fixed=True)}), path, row_group_size=7)


def free_lists(path: Path) -> None:
    columns = {f"features.{name}": lists(rows, fixed=False) for name, rows in FEATURES.items()}
    pq.write_table(pa.table({"embedding": lists(EMBEDDINGS, fixed=False), **columns}), path, row_group_size=4)


def single_columns(path: Path) -> None:
    columns = {f"features.{name}": lists(rows, fixed=True) for name, rows in FEATURES.items()}
    pq.write_table(pa.table({**{f"x{n}": x for n, x in enumerate(EMBEDDINGS.T)}, **columns}), path, row_group_size=5)


WRITERS: dict[str, tuple[str, Callable[[Path], None]]] = {
    "npz": (".npz", npz),
    "npz of any name": (".npz", npz_of_any_name),
    "fixed-size lists": (".parquet", fixed_lists),
    "lists": (".parquet", free_lists),
    "single columns": (".parquet", single_columns),
}


@pytest.fixture(params=WRITERS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    suffix, write = WRITERS[request.param]
    write(tmp_path / f"rows{suffix}")
    return tmp_path / f"rows{suffix}"


@pytest.mark.parametrize("start", [0, 5, 22])
@pytest.mark.parametrize("rows_at_once", [1, 4, 100])
def test_chunks_carry_the_features_of_their_rows(
    start: int, rows_at_once: int, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pnml.io.embeddings, "CHUNK_BYTES", 8 * (3 + 4 + 2) * rows_at_once)
    samples = open_embeddings(path, 3)
    assert samples.layer_names == ("stem", "block.1")
    assert samples.reader.widths == (3, 4, 2)
    chunks = list(samples.chunks(start))
    assert max(len(chunk.ids) for chunk in chunks) == min(rows_at_once, ROWS - start)
    np.testing.assert_array_equal(np.concatenate([chunk.embeddings for chunk in chunks]), EMBEDDINGS[start:])
    for number, rows in enumerate(FEATURES.values()):
        np.testing.assert_array_equal(np.concatenate([chunk.features[number] for chunk in chunks]), rows[start:])


def test_layer_that_is_not_there_is_named_with_those_that_are(path: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"no features of the layer 'block2'; it has those of stem, block\.1: write"):
        open_embeddings(path, layers=("stem", "block2"))
    with pytest.raises(
        ValueError, match=r"it has those of stem, block\.1: the name of a layer is without 'features\.'"
    ):
        open_embeddings(path, layers=("features.stem",))
    np.save(tmp_path / "rows.npy", EMBEDDINGS)
    assert open_embeddings(tmp_path / "rows.npy").layer_names == ()
    with pytest.raises(ValueError, match=r"rows\.npy has no features of the layer 'stem'; it has those of no layer"):
        open_embeddings(tmp_path / "rows.npy", layers=("stem",))


def table(**columns: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(pa.table({"embedding": [[1.0], [2.0]], **columns}), path)


def archive(**arrays: Any) -> Callable[[Path], None]:
    return lambda path: np.savez(path, embedding=np.ones((2, 1)), **arrays)


BAD: list[tuple[str, Callable[[Path], None], str]] = [
    (
        "a.npz",
        archive(**{"features.a": np.ones((3, 2))}),
        "'features.a' in .* has 3 rows, where there are 2 embeddings",
    ),
    (
        "a.npz",
        archive(**{"features.a": np.ones(2)}),
        r"array 'features.a' of .* holds float64 of shape \(2,\): expected",
    ),
    ("a.npz", archive(**{"features.a": np.ones((2, 3, 4))}), r"shape \(2, 3, 4\): expected .*; pool pixels or tokens"),
    (
        "a.parquet",
        lambda path: pq.write_table(pa.table({"embedding": pa.array([], pa.list_(pa.float32()))}), path),
        "empty: 0 rows$",
    ),
    ("a.npz", archive(**{"features.a": np.ones((2, 0))}), r"is empty: 2 rows of 1 \+ 0 features"),
    ("a.parquet", table(**{"features.a": [1.0, 2.0]}), "'features.a' in .* is double: expected a list of numbers"),
    (
        "a.parquet",
        table(**{"features.a": [[1.0, 2.0], [1.0]]}),
        "row 1 of .* has 1 features in 'features.a' where row 0 has 2",
    ),
]


@pytest.mark.parametrize(("name", "write", "message"), BAD)
def test_unreadable_features_raise_with_file_and_reason(
    name: str, write: Callable[[Path], None], message: str, tmp_path: Path
) -> None:
    write(tmp_path / name)
    with pytest.raises(ValueError, match=message):
        list(open_embeddings(tmp_path / name).chunks())
