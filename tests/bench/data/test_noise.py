from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from pnml_bench.data import load


@pytest.mark.parametrize("name", ["uniform", "gaussian"])
def test_noise_has_ten_thousand_images_that_depend_on_seed(name: str) -> None:
    first, other = load(name), load(name, seed=1)
    assert first.images.shape == (10_000, 32, 32, 3)
    assert first.images.dtype == np.uint8
    assert first.labels is None
    assert not np.array_equal(np.asarray(first.images), np.asarray(other.images))
    few = load(name, limit=4)
    assert np.array_equal(np.asarray(few.images), np.asarray(first.images)[::2500])
    assert few.note == "limited to 4 images, evenly spaced"


def test_uniform_noise_is_uniform_on_0_to_254() -> None:
    counts = np.bincount(np.asarray(load("uniform", seed=3).images).ravel(), minlength=256)
    assert counts[255] == 0
    assert stats.chisquare(counts[:255]).pvalue > 1e-4


def test_gaussian_noise_is_normal_and_clipped() -> None:
    counts = np.bincount(np.asarray(load("gaussian", seed=3).images).ravel(), minlength=256)
    edges = np.arange(1, 256)
    below = stats.norm.cdf(edges, loc=127.5, scale=255)  # a value is truncated to an integer
    expected = np.diff(np.concatenate([[0.0], below, [1.0]])) * counts.sum()
    assert stats.chisquare(counts, expected).pvalue > 1e-4


def test_noise_without_train_split_raises() -> None:
    with pytest.raises(ValueError, match="uniform has no split 'train': expected 'test'"):
        load("uniform", split="train")
