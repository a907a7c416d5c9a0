"""The sample: fair, bounded, and the same however the rows were cut, ordered or stored."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pnml import Correlation
from pnml.core import correlation, sample
from pnml.core.sample import SIZE, RowSample, _first, _keys

from .strategies import home, seeds

if TYPE_CHECKING:
    from pathlib import Path


def gaussian(seed: int, n: int, width: int = 5) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(n, width))


@given(seed=seeds, cuts=st.lists(st.integers(0, 3000), max_size=4), width=st.sampled_from([1, 3, 40, 70]))
def test_any_order_and_any_cut_give_the_same_sample(seed: int, cuts: list[int], width: int) -> None:
    rows = gaussian(seed, 3000, width)
    whole = RowSample.of(rows)
    mixed = np.random.default_rng(seed + 1).permutation(rows)
    parts = [part for part in np.split(mixed, sorted(cuts)) if len(part)]
    assert sum((RowSample.of(part) for part in parts[1:]), start=RowSample.of(parts[0])) == whole
    assert len(whole) == SIZE


def test_every_row_is_as_likely_as_any_other() -> None:
    """Over many sets, the kept rows are spread evenly over what the rows hold."""
    kept, seen = [], []
    for seed in range(20):
        rows = gaussian(seed, 4000)
        kept.append(RowSample.of(rows).numpy()[:, 0])
        seen.append(rows[:, 0])
    assert stats.ks_2samp(np.concatenate(kept), np.concatenate(seen)).pvalue > 1e-3


def test_neighbouring_and_sparse_rows_are_told_apart() -> None:
    """Rows that differ in one bit, or are mostly zeros, do not crowd the sample."""
    close = np.full((4000, 64), 1.0)
    close[:, 0] = 1 + np.arange(4000) * 2.0**-40
    sparse = np.where(np.random.default_rng(0).random((4000, 64)) < 0.9, 0.0, gaussian(1, 4000, 64))
    words = np.where(np.random.default_rng(0).random((4000, 1000)) < 0.99, 0.0, gaussian(1, 4000, 1000))
    for rows in (close, sparse, words):
        keys = RowSample.of(rows).keys
        assert len(np.unique(keys)) > 0.95 * SIZE
    assert RowSample.of(words) == RowSample.of(words[::-1])
    assert np.array_equal(home(_keys(torch.from_numpy(words))), _keys(words))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_torch_and_numpy_keep_the_same_rows(dtype: torch.dtype) -> None:
    rows = torch.from_numpy(gaussian(3, 2000, 50)).to(dtype)
    whole = RowSample.of(rows.numpy())
    assert RowSample.of(rows) == whole
    assert np.array_equal(home(_keys(rows)), _keys(rows.numpy()))  # as it is done on a GPU
    part = RowSample.of(rows[:900])
    on_device = RowSample(torch.from_numpy(part.keys), torch.from_numpy(part.rows))
    assert on_device + RowSample.of(rows[900:]) == whole
    mixed = RowSample.of(rows[900:]) + on_device
    assert isinstance(mixed.keys, torch.Tensor)
    assert mixed == whole


def test_of_equal_keys_the_first_are_kept() -> None:
    keys = np.repeat(np.arange(700), 2)[np.random.default_rng(0).permutation(1400)]
    first = _first(keys)
    assert np.array_equal(first, np.argsort(keys, kind="stable")[:SIZE])
    assert np.array_equal(first, home(_first(torch.from_numpy(keys))))


@pytest.mark.parametrize("distinct", [5000, 10])
def test_a_statistic_away_from_the_host_keeps_the_same_rows(distinct: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = np.tile(gaussian(5, distinct, 6), (10_000 // distinct, 1))
    here = Correlation(unit_norm=True).update(rows)
    for module in (correlation, sample):
        monkeypatch.setattr(module, "to_compute", lambda rows: rows)  # as on a GPU
    there = Correlation(unit_norm=True).update(torch.from_numpy(rows))
    assert there.sample == here.sample
    assert there.norm_sum == pytest.approx(here.norm_sum, rel=1e-14)
    np.testing.assert_allclose(there.matrix, here.matrix, rtol=1e-12, atol=1e-10)


def test_rows_are_kept_as_they_came() -> None:
    rows = np.array([[3.0, 4.0], [0.0, 1e200], [0.0, 0.0]])
    assert sorted(RowSample.of(rows).numpy().tolist()) == sorted(rows.tolist())
    kinds = [(np.float16, np.float32), (np.float32, np.float32), (np.float64, np.float64)]
    assert [RowSample.of(rows[:1].astype(kind)).rows.dtype for kind, _ in kinds] == [kept for _, kept in kinds]


def test_a_statistic_keeps_its_sample_in_a_file(tmp_path: Path) -> None:
    statistic = Correlation(unit_norm=True).update(gaussian(4, 50))
    statistic.save(tmp_path / "statistic.safetensors")
    assert Correlation.load(tmp_path / "statistic.safetensors") == statistic
    assert RowSample.of(gaussian(4, 50)) != "a sample"


@given(seed=seeds, cuts=st.lists(st.integers(0, 3000), max_size=4))
def test_classes_stay_with_their_rows(seed: int, cuts: list[int]) -> None:
    """However the rows are cut and ordered, and in files; a part without classes leaves none."""
    rows = gaussian(seed, 3000)
    classes = (10 * rows[:, 0]).astype(np.int64) % 7
    order = np.random.default_rng(seed).permutation(3000)
    parts = [part for part in np.split(order, sorted(cuts)) if len(part)]
    samples = [RowSample.of(rows[part], classes[part]) for part in parts]
    whole = sum(samples[1:], start=samples[0])
    assert whole == RowSample.of(rows, classes)
    expected = {row.tobytes(): c for row, c in zip(rows, classes, strict=True)}
    assert whole.classes is not None
    assert whole.classes.tolist() == [expected[row.tobytes()] for row in whole.numpy()]
    again = RowSample.from_arrays(whole.arrays())
    assert again == whole
    assert RowSample.of(rows) != whole
    assert (whole + RowSample.of(rows)).classes is None
