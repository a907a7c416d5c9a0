"""The leverages of layers, compared with those of training rows: one-sided, scale-free, silent about the known."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnml.core.profile import LEVEL, SLOPE, Profile, excess, shares

from .strategies import Matrix, modest, seeds


def leverages(seed: int, n: int, width: int, together: float = 0.5) -> Matrix:
    """Log-normal leverages of layers that vary together."""
    rng = np.random.default_rng(seed)
    common = rng.normal(size=(n, 1))
    return np.exp(together * common + rng.normal(size=(n, width)) - 5)


def added(profile: Profile, h: Matrix) -> Matrix:
    return np.asarray(shares(h, profile, profile.arrays))


@modest
@given(seeds, st.sampled_from([2, 5, 10]))
def test_layers_are_silent_about_a_share_of_fresh_rows(seed: int, width: int) -> None:
    profile = Profile.fit(leverages(seed, 1000, width), 1000)
    fresh = added(profile, leverages(seed + 1, 5000, width))
    assert (fresh >= 0).all()
    assert (fresh.sum(axis=1) == 0).mean() == pytest.approx(LEVEL, abs=0.04)


@modest
@given(seeds, st.floats(1e-6, 1e6))
def test_the_unit_of_leverage_does_not_matter(seed: int, unit: float) -> None:
    """Nor therefore the number of training rows, with which leverages fall."""
    train, x = leverages(seed, 300, 4), leverages(seed + 1, 50, 4) * 20
    plain = Profile.fit(train, 10**9)  # so many rows that no leverage is too small
    scaled = Profile.fit(unit * train, round(10**9 / unit))
    np.testing.assert_allclose(added(scaled, unit * x), added(plain, x), rtol=1e-6, atol=1e-9)


@modest
@given(seeds, st.integers(0, 3))
def test_less_than_usual_is_not_strange(seed: int, layer: int) -> None:
    """However small: a sample on the mean of its class is as known as can be."""
    train = leverages(seed, 500, 4)
    profile, usual = Profile.fit(train, 500), np.median(train, axis=0)[None]
    smaller = usual.copy()
    smaller[:, layer] = 0
    assert added(profile, usual).sum() == 0
    assert added(profile, smaller).sum() == 0


def test_a_layer_that_stands_out_is_stranger_where_layers_vary_together() -> None:
    x = np.exp(-5 + np.array([[0.0, 3.0, 0.0, 0.0]]))
    loose, tight = (Profile.fit(leverages(0, 2000, 4, together), 10**6) for together in (0.1, 3.0))
    away = np.array([0, 3.0, 0, 0])
    far = [np.exp(profile.centre + away * profile.spread.mean())[None] for profile in (loose, tight)]
    assert added(tight, far[1]).sum() > 2 * added(loose, far[0]).sum()
    assert added(loose, x)[0].argmax() == 1


def test_the_excess_is_measured_in_units_of_the_training_rows() -> None:
    train = leverages(0, 4000, 3)
    profile = Profile.fit(train, 4000)
    s = profile.parts(train).sum(axis=1)
    limit, middle = np.quantile(s, LEVEL), np.median(s)
    expected = SLOPE * np.maximum(0, s - limit) / (limit - middle)
    np.testing.assert_allclose(added(profile, train).sum(axis=1), expected)
    np.testing.assert_allclose(excess(train, profile, profile.arrays), expected)
