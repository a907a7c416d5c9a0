"""The statistic of rows of several layers and classes: sums of each, however the rows were cut, ordered or stored."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any

import array_api_strict as strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import blocks
from pnml import Correlation
from pnml.core import correlation as module

from .strategies import Matrix, modest, seeds

if TYPE_CHECKING:
    from pathlib import Path

WIDTHS, CLASSES = (4, 3, 5), 6
EDGES = [0, 4, 7, 12]
LIBRARIES = [np, torch, jnp, strict]


def problem(seed: int = 0, n: int = 60) -> tuple[Matrix, Matrix]:
    """Rows of three layers of different lengths, and classes of which the last has no row."""
    rng = np.random.default_rng(seed)
    rows = rng.normal(size=(n, 12)) * np.repeat([1.0, 100.0, 0.01], WIDTHS)
    return rows, rng.integers(CLASSES - 1, size=n)


def empty(**options: Any) -> Correlation:
    return Correlation(WIDTHS, n_classes=CLASSES, **options)


def statistic() -> Correlation:
    return empty().update(*problem())


def check(found: Correlation, rows: Matrix, classes: Matrix, rtol: float = 1e-12) -> None:
    """Compare with Σxxᵀ and Σx of every block, the class counts and the class sums, by loops over all rows."""
    layers = [rows[:, start:stop] for start, stop in pairwise(EDGES)]
    sums = np.zeros((CLASSES, 4))
    for number, block in enumerate(blocks(layers, input_layer=found.input_layer)):
        expected = block.T @ block
        np.testing.assert_allclose(found.block_matrix(number), expected, rtol=rtol, atol=rtol * np.abs(expected).max())
        np.testing.assert_allclose(
            found.block_sum(number), block.sum(axis=0), rtol=rtol, atol=60 * rtol * np.abs(block).max()
        )
        if number == 0:
            np.add.at(sums, classes, block)
    np.testing.assert_array_equal(found.class_counts, np.bincount(classes, minlength=CLASSES))
    np.testing.assert_allclose(found.class_sums, sums, rtol=rtol, atol=60 * rtol)
    np.testing.assert_allclose(found.norm_sum, np.linalg.norm(rows[:, :4], axis=1).sum(), rtol=rtol)
    assert (found.widths, found.n_features, found.count) == (WIDTHS, 12, len(rows))


@modest
@given(seeds, st.lists(st.integers(0, 60), max_size=4), st.booleans())
def test_parts_in_any_order_make_the_whole(seed: int, cuts: list[int], input_layer: bool) -> None:  # noqa: FBT001
    rows, classes = problem(seed)
    order = np.random.default_rng(seed).permutation(60)
    streamed, merged = empty(input_layer=input_layer), empty(input_layer=input_layer)
    for part in np.split(order, sorted(cuts)):
        streamed.update(rows[part], classes[part])
        merged = empty(input_layer=input_layer).update(rows[part], classes[part]) + merged
    whole = empty(input_layer=input_layer).update(rows, classes)
    for found in (whole, streamed, merged):
        check(found, rows, classes)
        assert found.sample == whole.sample


@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_and_classes_of_any_library_give_the_same_sums(library: Any) -> None:
    rows, classes = problem()
    single = rows.astype(np.float32)
    found = empty().update(library.asarray(single), library.asarray(classes))
    check(found, single.astype(np.float64), classes, rtol=1e-6)
    mixed = empty().update(single[:20], classes[:20].tolist()).update(library.asarray(single[20:]), classes[20:])
    check(mixed, single.astype(np.float64), classes, rtol=1e-6)


def test_sums_away_from_the_host_are_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    rows, classes = problem()
    monkeypatch.setattr(module, "to_compute", lambda rows: rows)  # as on a GPU
    found = empty().update(torch.from_numpy(rows[:30]), torch.from_numpy(classes[:30]))
    found.update(torch.from_numpy(rows[30:]), torch.from_numpy(classes[30:]))
    check(found, rows, classes)


def test_the_first_block_is_that_of_the_matrix_and_of_norms() -> None:
    found = statistic()
    np.testing.assert_array_equal(found.matrix, found.block_matrix(0))
    assert found.mean_norm == pytest.approx(np.linalg.norm(problem()[0][:, :4], axis=1).mean())
    assert np.trace(found.block_matrix(2)) == pytest.approx(60)


def test_the_statistic_of_embeddings_alone_is_that_of_a_fit_without_layers() -> None:
    rows, classes = problem()
    alone = Correlation(4, n_classes=CLASSES).update(rows[:, :4], classes)
    found = empty(input_layer=True).update(rows, classes).embeddings_alone
    np.testing.assert_allclose(found.matrix, alone.matrix, rtol=1e-12)
    assert (found.widths, found.count, found.input_layer) == ((4,), 60, False)
    assert found.sample is not None
    assert sorted(found.sample.numpy().tolist()) == sorted(rows[:, :4].tolist())
    assert alone.embeddings_alone == alone


def test_rows_whose_embedding_is_zero_are_left_out_with_their_class_and_others_stay() -> None:
    rows, classes = problem()
    rows[3, :4] = 0
    rows[7, 4:7] = 0
    found = empty().update(rows, classes)
    kept = np.bincount(np.delete(classes, 3), minlength=CLASSES)
    assert (found.count, found.left_out, found.class_counts.tolist()) == (59, 1, kept.tolist())
    assert np.trace(found.block_matrix(1)) == pytest.approx(58)
    assert np.isfinite(found.block_matrix(3)).all()
    assert found.sample is not None
    assert found.sample.classes is not None
    np.testing.assert_array_equal(np.bincount(found.sample.classes, minlength=CLASSES), kept)


def test_an_empty_batch_needs_classes_and_changes_nothing() -> None:
    found = statistic().update(np.zeros((0, 12)), [])
    assert found == statistic()
    nothing = empty().update(np.zeros((0, 12)), np.zeros(0))
    assert nothing.class_sums.shape == (CLASSES, 4)
    assert nothing + statistic() == statistic() == statistic() + nothing


def test_classes_are_not_looked_at_where_there_are_none() -> None:
    rows, classes = problem()
    plain = Correlation(12, unit_norm=True).update(rows)
    assert Correlation(12, unit_norm=True).update(rows, classes) + Correlation(12, unit_norm=True) == plain


@pytest.mark.parametrize("input_layer", [False, True])
def test_save_and_load(tmp_path: Path, *, input_layer: bool) -> None:
    rows, classes = problem()
    saved = empty(input_layer=input_layer).update(rows, classes)
    saved.save(tmp_path / "statistic")
    loaded = Correlation.load(tmp_path / "statistic")
    assert loaded == saved
    assert (loaded.widths, loaded.n_classes) == (WIDTHS, CLASSES)
    assert loaded.update(rows, classes) == saved.update(rows, classes)


def test_equality_sees_layers_and_classes() -> None:
    rows, classes = problem()
    assert statistic() == statistic()
    moved = rows.copy()
    moved[:, 11] += 1e-3
    assert empty().update(moved, classes) != statistic()
    assert empty().update(rows, (classes + 1) % CLASSES) != statistic()
    assert Correlation(12, unit_norm=True).update(rows) != statistic()
    assert empty(input_layer=True).update(rows, classes) != statistic()
    assert Correlation((4, 8), unit_norm=True, n_classes=CLASSES).update(rows, classes) != statistic()


def test_merging_leaves_the_parts_alone() -> None:
    first, second = statistic(), statistic()
    merged = (first + second).update(*problem(1))
    assert first == second == statistic()
    assert merged.class_counts.sum() == 180
    copied = (first + empty()).update(*problem(1))
    assert first == statistic()
    assert copied.count == 120


@pytest.mark.parametrize(
    ("classes", "message"),
    [
        (None, r"pass their classes, update\(rows, classes\)"),
        (np.zeros(59, dtype=int), r"one class for each of 60 rows, got shape \(59,\)"),
        (np.zeros((60, 1), dtype=int), r"one class for each of 60 rows, got shape \(60, 1\)"),
        (np.full(60, 6), "classes from 0 to 5, got 6 to 6"),
        (np.arange(60) - 1, "classes from 0 to 5, got -1 to 58"),
        (np.full(60, 0.5), r"expected whole numbers as classes, got 0\.5"),
        (np.full(60, np.nan), "expected whole numbers as classes, got nan"),
    ],
)
def test_classes_that_are_none_are_refused_and_change_nothing(classes: Any, message: str) -> None:
    state = statistic()
    with pytest.raises(ValueError, match=message):
        state.update(problem()[0], classes)
    assert state == statistic()


def test_bad_rows_change_nothing() -> None:
    rows, classes = problem()
    for value in (np.nan, np.inf):
        state, bad = statistic(), rows.copy()
        bad[17, 9] = value
        with pytest.raises(ValueError, match=f"row 17 holds {value} in column 9"):
            state.update(bad, classes)
        assert state == statistic()
    with pytest.raises(ValueError, match="expected rows of 12 features, got 4"):
        statistic().update(rows[:, :4], classes)


def test_merge_refusals() -> None:
    rows, classes = problem()
    with pytest.raises(ValueError, match="6 and 0 classes: make both with the same n_classes"):
        _ = statistic() + Correlation(WIDTHS, unit_norm=True)
    with pytest.raises(ValueError, match=r"the last layer of one Correlation is an input \(input_layer=True\)"):
        _ = statistic() + empty(input_layer=True).update(rows, classes)
    other = Correlation((4, 8), unit_norm=True, n_classes=CLASSES)
    for second in (other, Correlation((4, 8), unit_norm=True, n_classes=CLASSES).update(rows, classes)):
        with pytest.raises(ValueError, match=r"width 4 \+ 3 \+ 5 and 4 \+ 8"):
            _ = statistic() + second
