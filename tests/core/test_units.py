"""Another unit of length: embeddings times s with a head over s are the same classifier, and get the same scores."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnml import Detector
from pnml.core.sample import SIZE, RowSample, _keys

from .strategies import seeds

Matrix = np.ndarray[Any, Any]
N, WIDTH, CLASSES = 5000, 40, 6
FACTORS = [1e-12, 1e-3, 0.3, 7.0, 1e6]


def problem(dtype: Any = np.float64) -> tuple[Matrix, Matrix, Matrix]:
    """Return rows that are never below 0, as after a ReLU, a weight and a bias."""
    rng = np.random.default_rng(0)
    rows = np.maximum(rng.normal(size=(N, WIDTH)) + rng.normal(size=(CLASSES, WIDTH))[rng.integers(CLASSES, size=N)], 0)
    return rows.astype(dtype), rng.normal(size=(CLASSES, WIDTH)), rng.normal(size=CLASSES)


def chosen(rows: Matrix) -> set[int]:
    """Return the numbers of the rows that are sampled."""
    classes = RowSample.of(rows, np.arange(len(rows))).classes
    assert classes is not None
    return {*classes.tolist()}


@pytest.mark.parametrize("factor", FACTORS)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_length_and_scores_do_not_depend_on_the_unit(factor: float, dtype: Any) -> None:
    rows, weight, bias = problem(dtype)
    here = Detector(weight, bias).fit(rows)
    there = Detector(weight / factor, bias).fit(rows * dtype(factor))
    exact = dtype is np.float64
    assert there.embedding_length == pytest.approx(factor * here.embedding_length, rel=1e-9 if exact else 5e-3)
    new = np.random.default_rng(1).normal(size=(200, WIDTH)).astype(dtype)
    found, expected = there.score(new * dtype(factor)), here.score(new)
    np.testing.assert_allclose(found, expected, rtol=1e-6 if exact else 2e-2)


@pytest.mark.parametrize("factor", FACTORS)
def test_rounded_to_float32_hardly_any_other_row_is_chosen(factor: float) -> None:
    rows = problem(np.float32)[0]
    assert len(chosen(rows) - chosen(rows * np.float32(factor))) <= 0.02 * SIZE


@given(seed=seeds, power=st.integers(-60, 60), width=st.sampled_from([2, 3, 40, 200]))
def test_powers_of_two_change_no_row(seed: int, power: int, width: int) -> None:
    """They are not rounded. Of rows of nearly one direction, as there are in the plane, another may be the last."""
    rows = np.random.default_rng(seed).normal(size=(1500, width))
    assert len(chosen(rows * 2.0**power) - chosen(rows)) <= (1 if width == 2 else 0)


def test_the_unit_of_the_embedding_is_not_that_of_earlier_layers() -> None:
    rows, weight, bias = problem()
    features = [np.random.default_rng(2).normal(size=(N, 7))]
    here = Detector(weight, bias).fit(rows, features=features)
    there = Detector(weight / 1e4, bias).fit(1e4 * rows, features=[1e-3 * features[0]])
    assert there.embedding_length == pytest.approx(1e4 * here.embedding_length, rel=1e-9)
    scores = there.score(1e4 * rows[:50], features=[1e-3 * features[0][:50]])
    np.testing.assert_allclose(scores, here.score(rows[:50], features=[features[0][:50]]), rtol=1e-5)


@pytest.mark.parametrize("width", [1, 3, 100])
def test_rows_along_axes_are_all_as_likely(width: int) -> None:
    """They have the same few directions. Chosen by those, the sample would hold a few of them and no others."""
    rng = np.random.default_rng(3)
    rows = np.zeros((4000, width))
    rows[np.arange(4000), rng.integers(width, size=4000)] = rng.normal(size=4000)
    kept = RowSample.of(rows).numpy()
    assert (kept > 0).sum() == pytest.approx(SIZE / 2, abs=100)  # six standard deviations
    if width < 100:
        assert (kept != 0).sum(axis=0) == pytest.approx(np.full(width, SIZE / width), abs=100)


def test_rows_as_close_as_float32_tells_are_all_as_likely() -> None:
    """Each of two classes of nearly equal rows has its part in the sample."""
    rng = np.random.default_rng(4)
    centres = rng.normal(size=(2, 30)) / np.sqrt(30)
    labels = rng.integers(2, size=4000)
    rows = centres[labels] + 2.0**-15 * rng.normal(size=(4000, 30))
    classes = RowSample.of(rows, labels).classes
    assert classes is not None
    assert 0.25 < classes.mean() < 0.75


def test_rows_of_one_direction_are_told_apart() -> None:
    """A row that is another one times 2 is no copy of it."""
    rows = np.arange(1.0, 1001)[:, None] * np.ones((1, 5))
    assert RowSample.of(rows).repeated == 0.0
    assert RowSample.of(rows[:500]).recognise(rows).known == 500


def test_keys_hold_direction_and_values() -> None:
    """Rows of one direction share the upper half of their keys and not the lower."""
    keys = [int(_keys(factor * np.arange(1.0, 9)[None])[0]) for factor in (1, 2, 3)]
    assert len({key >> 32 for key in keys}) == 1
    assert len({key & 0xFFFFFFFF for key in keys}) == 3
