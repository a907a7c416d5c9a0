"""Rows of files: row numbers in place of ids, and errors that name the row of the file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from pnml.io.embeddings import open_embeddings
from pnml.io.source import Chunk, locate_errors

if TYPE_CHECKING:
    from pathlib import Path


def fail_on(chunk: Chunk) -> None:
    with locate_errors(chunk, "rows.npy"):
        raise ValueError("row 1 is bad")


@pytest.mark.parametrize("start", [0, 3, 5])
def test_npz_without_ids_yields_row_numbers(start: int, tmp_path: Path) -> None:
    np.savez(tmp_path / "rows.npz", embedding=np.arange(21.0).reshape(7, 3))
    batches = list(open_embeddings(tmp_path / "rows.npz").reader.read(start, 2))
    assert np.concatenate([ids for ids, _ in batches]).tolist() == list(range(start, 7))
    assert np.concatenate([rows for _, rows in batches])[:, 0].tolist() == [3.0 * row for row in range(start, 7)]


def test_locate_errors_names_position_and_id_of_a_value_that_is_not_finite() -> None:
    rows = np.array([[1.0, 2.0], [3.0, np.inf]])
    with pytest.raises(ValueError, match=r"row 11 of rows\.npy, counted from 0 \(id b\), holds inf in column 1"):
        fail_on(Chunk(12, np.array([10, 11]), np.array(["a", "b"]), rows))


def test_locate_errors_names_the_layer_of_a_feature_that_is_not_finite() -> None:
    features = np.ones((2, 3)), np.array([[1.0, np.nan], [1.0, 1.0]])
    chunk = Chunk(2, np.arange(2), np.arange(2), np.ones((2, 2)), features=features)
    with pytest.raises(ValueError, match=r"holds nan in column 1 of the features of layer 1: fill it in"):
        fail_on(chunk)
    named = r"row 0 of rows\.npz, counted from 0, holds nan in column 1 of the features of 'block2': fill it in"
    with pytest.raises(ValueError, match=named), locate_errors(chunk, "rows.npz", ("block1", "block2")):
        raise ValueError("row 0 is bad")


def test_open_embeddings_of_another_width_raises(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.ones((2, 3)))
    assert open_embeddings(tmp_path / "rows.npy", 3).count == 2
    with pytest.raises(ValueError, match="has embeddings of 3 features, the head takes 4"):
        open_embeddings(tmp_path / "rows.npy", 4)
