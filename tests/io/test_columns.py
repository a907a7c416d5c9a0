"""Columns of embeddings are chosen by name; one that is not there is answered with those that are."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pnml.io.embeddings import open_embeddings

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(0)
FIRST, SECOND = RNG.normal(size=(2, 9, 4))


@pytest.fixture(params=["rows.npz", "rows.parquet"])
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A file of two layers, of which one has the usual name."""
    file: Path = tmp_path / request.param
    if file.suffix == ".npz":
        np.savez(file, embedding=FIRST, penultimate=SECOND, id=np.arange(9))
    else:
        columns = {"embedding": FIRST.tolist(), "penultimate": SECOND.tolist(), "id": list(range(9)), "name": ["a"] * 9}
        pq.write_table(pa.table(columns), file)
    return file


def test_chosen_array_or_list_column_is_read(path: Path) -> None:
    for columns, expected in ((None, FIRST), (["penultimate"], SECOND), (["pen*"], SECOND)):
        samples = open_embeddings(path, 4, columns=columns)
        np.testing.assert_array_equal(np.concatenate([chunk.embeddings for chunk in samples.chunks()]), expected)
    one, other = (open_embeddings(path, columns=columns).fingerprint() for columns in (None, ["penultimate"]))
    assert one != other  # a run is not resumed with another column


def test_unknown_column_is_answered_with_the_candidates(path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"has no column 'logits' of numbers: choose --column from embedding, penultimate$"
    ):
        open_embeddings(path, columns=["logits"])
    with pytest.raises(ValueError, match=r"--column \* chooses .*: choose one"):
        open_embeddings(path, columns=["*"])


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_columns_of_numbers_are_chosen_by_name_and_pattern(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    columns = {"label": [1, 2], "f1": [0.5, 1.5], "f0": [2.5, 3.5], "x.y": [4.5, 5.5], "kind": ["a", "b"]}
    if path.suffix == ".csv":
        lines = [",".join(columns), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
        path.write_text("\n".join(lines))
    else:
        pq.write_table(pa.table(columns), path)
    for wanted, expected in {
        ("f*",): [[0.5, 2.5], [1.5, 3.5]],
        ("f0", "f1"): [[2.5, 0.5], [3.5, 1.5]],
        ("x.y", "f*", "f0"): [[4.5, 0.5, 2.5], [5.5, 1.5, 3.5]],
        ("label",): [[1.0], [2.0]],
    }.items():
        (chunk,) = open_embeddings(path, columns=wanted).chunks()
        assert chunk.embeddings.tolist() == expected
    with pytest.raises(ValueError, match=r"has no column 'xxy' of numbers: choose --column from label, f1, f0, x\.y$"):
        open_embeddings(path, columns=["xxy"])
    with pytest.raises(ValueError, match="has no column 'kind' of numbers"):
        open_embeddings(path, columns=["kind"])


def test_lists_of_another_name_are_named_with_the_option(tmp_path: Path) -> None:
    pq.write_table(pa.table({"vector": FIRST.tolist()}), tmp_path / "rows.parquet")
    with pytest.raises(ValueError, match=r"only vector \(list<.*>\): choose one with --column vector$"):
        open_embeddings(tmp_path / "rows.parquet")
    np.savez(tmp_path / "rows.npz", train=FIRST, test=SECOND)
    with pytest.raises(ValueError, match="name the one to use 'embedding', or choose it with --column"):
        open_embeddings(tmp_path / "rows.npz")
