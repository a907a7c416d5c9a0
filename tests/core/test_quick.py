"""Regrets in float32: within their bound, or not in float32."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pnml import Detector
from pnml.core.quick import LARGEST_ERROR, Quick

from .strategies import seeds

if TYPE_CHECKING:
    from pnml.core.scaling import EmbeddingScale

    from .strategies import Matrix

LIBRARIES = [np.asarray, torch.tensor]


@st.composite
def problems(draw: st.DrawFn) -> tuple[Detector, Matrix]:
    """A detector and float32 embeddings of every kind that float32 might trip over."""
    rng = np.random.default_rng(draw(seeds))
    width = draw(st.sampled_from([2, 17, 64, 150]))
    mixed = rng.normal(size=(width, width)) if draw(st.booleans()) else np.eye(width)
    strength = np.geomspace(1, 10.0 ** -draw(st.integers(0, 6)), width)
    features = rng.normal(draw(st.sampled_from([0.0, 1.0, 30.0])), 1, size=(4 * width + 60, width)) * strength @ mixed
    if draw(st.booleans()):
        features = np.maximum(features, 0)
    repeated = draw(st.sampled_from([0, 0, 1, width // 2]))
    features[:, :repeated] = features[:, width - repeated :] * (1 + 10.0 ** -draw(st.integers(1, 8)) * rng.normal())
    dead = draw(st.integers(0, width // 3))
    features[:, width // 2 : width // 2 + dead] = 0
    train, test = features[60:].astype(np.float32), features[:20]
    even = np.ones((1, width))
    along = np.linalg.svd(train, full_matrices=False)[2]
    x = np.vstack([test, train[:10], rng.normal(size=(10, width)), even, along, np.zeros((1, width))])
    x = x * draw(st.sampled_from([1.0, 1.0, 1.0, 1e-25, 1e25]))
    scale: EmbeddingScale = draw(st.sampled_from(["auto", "paper", "natural"]))
    if scale != "natural":
        train = train[np.abs(train).max(axis=1) > 0]
    assume(len(train))
    weight = rng.normal(size=(draw(st.integers(2, 12)), width)) * draw(st.sampled_from([0.1, 1.0, 10.0]))
    return Detector(weight, rng.normal(size=len(weight)), embedding_scale=scale).fit(train), x.astype(np.float32)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(problems(), st.sampled_from(LIBRARIES))
def test_a_trusted_regret_is_within_the_limit(case: tuple[Detector, Matrix], library: Any) -> None:
    detector, x = case
    exact = detector.score(x)
    noise = detector.label_noise
    quick = Quick(*detector.scaled_head, detector.subspace, detector.embedding_scale, label_noise=noise)
    found, trusted = (np.asarray(part) for part in quick.score(library(x)))
    assert found.dtype == np.float32
    assert (np.abs(found - exact)[trusted] <= LARGEST_ERROR * exact[trusted]).all()


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(problems(), st.sampled_from(LIBRARIES))
def test_a_score_in_float32_is_within_the_limit_whatever_comes(case: tuple[Detector, Matrix], library: Any) -> None:
    detector, x = case
    exact = detector.score(x)
    found = detector.score(library(x), precision="float32")
    assert isinstance(found, type(library(x)))
    np.testing.assert_allclose(found, exact, rtol=LARGEST_ERROR)


def ordinary(width: int = 40) -> tuple[Detector, Matrix]:
    rng = np.random.default_rng(0)
    features = np.maximum(rng.normal(0.3, 1, size=(500, width)), 0) * np.geomspace(1, 1e-4, width)
    weight = rng.normal(size=(5, width))
    return Detector(weight, embedding_scale="paper").fit(features[100:]), features[:100].astype(np.float32)


@pytest.mark.parametrize("library", LIBRARIES)
def test_weak_features_do_no_harm(library: Any) -> None:
    detector, x = ordinary()
    assert detector.subspace.eigenvalues[0] / detector.subspace.eigenvalues[-1] > 1e7
    quick = Quick(detector.weight, detector.bias, detector.subspace, "paper")
    assert quick.typical_error < 1e-4
    found, trusted = quick.score(library(x))
    assert trusted.all()
    np.testing.assert_allclose(found, detector.score(x), rtol=1e-5)


def residual(rows: Matrix, column: int) -> float:
    """Give the length of what the other columns cannot say about one."""
    others = np.delete(rows, column, axis=1)
    return float(np.linalg.norm(rows[:, column] - others @ np.linalg.lstsq(others, rows[:, column], rcond=None)[0]))


def test_features_that_repeat_each_other_are_left_to_float64() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(300, 20))
    features[:, 0] = features[:, 1] + 1e-6 * rng.normal(size=300)
    detector = Detector(rng.normal(size=(3, 20)), embedding_scale="paper").fit(features)
    quick = Quick(detector.weight, detector.bias, detector.subspace, "paper")
    # The variance inflation factors, by regressing each feature on the others.
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    roots = [np.linalg.norm(column) / residual(unit, k) for k, column in enumerate(unit.T)]
    assert quick.typical_error == pytest.approx(2 * (2 * 20**0.5 + 4) * 2**-24 * sum(roots) / 20**0.5, rel=1e-3)
    assert quick.typical_error > LARGEST_ERROR
    x = features[:50].astype(np.float32)
    assert not quick.suits(x)
    np.testing.assert_array_equal(detector.score(x, precision="float32"), detector.score(x))


@pytest.mark.parametrize("library", LIBRARIES)
def test_only_the_rows_in_doubt_are_computed_again(library: Any) -> None:
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    train = rng.normal(size=(400, 30)) @ (basis * np.geomspace(1, 1e-4, 30)).T
    detector = Detector(rng.normal(size=(4, 30)), embedding_scale="paper").fit(train)
    strongest = np.outer([1, 2, 3], basis[:, 0])  # all weak directions cancel
    x = library(np.vstack([train[:20], strongest]).astype(np.float32))
    quick = Quick(detector.weight, detector.bias, detector.subspace, "paper")
    _, trusted = quick.score(x)
    assert [bool(v) for v in trusted] == [True] * 20 + [False] * 3
    found, exact = detector.score(x, precision="float32"), detector.score(x)
    assert (found[20:] == exact[20:]).all()
    assert not (found[:20] == exact[:20]).all()


def test_dead_features_leave_no_doubt_who_is_outside() -> None:
    detector, x = ordinary()
    rng = np.random.default_rng(3)
    wide = np.hstack([x, np.zeros((100, 3), dtype=np.float32)])
    detector = Detector(rng.normal(size=(5, 43)), embedding_scale="paper").fit(wide[:80])
    assert detector.subspace.rank == 40
    alive, leaving = wide[80:], wide[80:] + np.float32(1e-3) * np.eye(43, dtype=np.float32)[42]
    quick = Quick(detector.weight, detector.bias, detector.subspace, "paper")
    for rows in (alive, leaving):
        found, trusted = quick.score(rows)
        assert trusted.all()
        np.testing.assert_allclose(found, detector.score(rows), rtol=1e-5)


def test_embeddings_that_are_wider_stay_wide() -> None:
    detector, x = ordinary()
    found = detector.score(x.astype(np.float64), precision="float32")
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, detector.score(x), rtol=1e-5)
    half = detector.score(x.astype(np.float16), precision="float32")
    np.testing.assert_allclose(half, detector.score(x.astype(np.float16)), rtol=1e-5)


def test_other_libraries_are_scored_in_float64() -> None:
    detector, x = ordinary()
    np.testing.assert_array_equal(detector.score(jnp.asarray(x), precision="float32"), detector.score(jnp.asarray(x)))


def test_reduced_products_are_not_taken_for_float32() -> None:
    detector, x = ordinary()
    rows = torch.tensor(x)
    torch.set_float32_matmul_precision("medium")
    try:
        np.testing.assert_array_equal(detector.score(rows, precision="float32"), detector.score(rows))
    finally:
        torch.set_float32_matmul_precision("highest")
    assert not (detector.score(rows, precision="float32") == detector.score(rows)).all()


def test_products_of_unknown_precision_are_not_taken_for_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise RuntimeError("set in two ways")

    monkeypatch.setattr(torch, "get_float32_matmul_precision", refuse)
    detector, x = ordinary()
    rows = torch.tensor(x)
    np.testing.assert_array_equal(detector.score(rows, precision="float32"), detector.score(rows))


def test_training_rows_are_left_out_in_float64() -> None:
    detector, x = ordinary()
    exact = detector.score(x, leave_one_out=True)
    np.testing.assert_array_equal(detector.score(x, leave_one_out=True, precision="float32"), exact)


def test_more_training_rows_make_a_new_scorer() -> None:
    detector, x = ordinary()
    before = detector.score(x, precision="float32")
    after = detector.partial_fit(x).score(x, precision="float32")
    assert (after < before).all()
    np.testing.assert_allclose(after, detector.score(x), rtol=1e-5)


@pytest.mark.parametrize("precision", ["float64", "float32"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_a_value_that_is_not_finite_is_named(library: Any, precision: Any) -> None:
    detector, x = ordinary()
    x[97, 3] = np.nan
    with pytest.raises(ValueError, match="row 97 holds nan in column 3"):
        detector.score(library(x), precision=precision)


def test_no_other_precision() -> None:
    detector, x = ordinary()
    with pytest.raises(ValueError, match=r"precision must be one of \('float64', 'float32', 'float16'\), got 'tf32'"):
        detector.score(x, precision="tf32")  # type: ignore[arg-type]


def test_a_training_set_of_zeros_is_left_to_float64() -> None:
    detector = Detector(np.eye(3), embedding_scale="natural").fit(np.zeros((5, 3)))
    x = np.eye(3, dtype=np.float32)
    assert not Quick(detector.weight, detector.bias, detector.subspace, "natural").suits(x)
    np.testing.assert_array_equal(detector.score(x, precision="float32"), detector.score(x))
