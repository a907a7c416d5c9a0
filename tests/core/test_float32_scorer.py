"""Regrets in float32: within their bound, or computed in float64."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pnml import Detector
from pnml.core.float32_scorer import LARGEST_ERROR, Float32Scorer
from pnml.core.model import ScoringModel

from .strategies import seeds

if TYPE_CHECKING:
    from pnml.core.scaling import EmbeddingScale

    from .strategies import Matrix

EPS = 2.0**-23  # of float32


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


def exact_scores(detector: Detector, x: Matrix) -> Matrix:
    """Score in float64 what came in float32: the same numbers, whatever the tolerance for rows outside the span."""
    return np.asarray(detector._fitted_scorers[0].regret(x, EPS))


def float32_scorer(detector: Detector) -> Float32Scorer:
    return Float32Scorer(detector.model)


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(problems())
def test_trusted_regrets_are_within_the_bound(case: tuple[Detector, Matrix]) -> None:
    detector, x = case
    exact = exact_scores(detector, x)
    found, trusted = float32_scorer(detector).score(x, EPS)
    assert found.dtype == np.float32
    assert (np.abs(found - exact)[trusted] <= LARGEST_ERROR * exact[trusted]).all()


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(problems(), st.sampled_from([1e3, 1e6, 1e7, 1e8]))
def test_an_offset_common_to_all_classes_does_not_loosen_the_bound(
    case: tuple[Detector, Matrix], offset: float
) -> None:
    """The softmax does not see it, and float32 must not either."""
    detector, x = case
    moved = Detector(detector.weight + offset, detector.bias + offset, embedding_scale=detector.embedding_scale)
    moved.merge(detector.correlation)
    exact = exact_scores(moved, x)
    found, trusted = float32_scorer(moved).score(x, EPS)
    assert (np.abs(found - exact)[trusted] <= LARGEST_ERROR * exact[trusted]).all()


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(problems(), st.sampled_from([np.asarray, torch.tensor]))
def test_scores_of_float32_embeddings_are_within_the_bound(case: tuple[Detector, Matrix], library: Any) -> None:
    detector, x = case
    found = detector.score(library(x))
    assert isinstance(found, type(library(x)))
    np.testing.assert_allclose(found, exact_scores(detector, x).astype(np.float32), rtol=LARGEST_ERROR)


def ordinary(width: int = 40) -> tuple[Detector, Matrix]:
    rng = np.random.default_rng(0)
    features = np.maximum(rng.normal(0.3, 1, size=(500, width)), 0) * np.geomspace(1, 1e-4, width)
    weight = rng.normal(size=(5, width))
    return Detector(weight, embedding_scale="paper").fit(features[100:]), features[:100].astype(np.float32)


def test_weak_features_do_no_harm() -> None:
    detector, x = ordinary()
    assert detector.subspace.eigenvalues[0] / detector.subspace.eigenvalues[-1] > 1e7
    scorer = float32_scorer(detector)
    assert scorer.typical_error < 1e-4
    found, trusted = scorer.score(x, EPS)
    assert trusted.all()
    np.testing.assert_allclose(found, exact_scores(detector, x), rtol=1e-5)


def residual(rows: Matrix, column: int) -> float:
    """Return the norm of what the other columns cannot explain of one."""
    others = np.delete(rows, column, axis=1)
    return float(np.linalg.norm(rows[:, column] - others @ np.linalg.lstsq(others, rows[:, column], rcond=None)[0]))


def test_nearly_dependent_features_are_scored_in_float64(caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(300, 20))
    features[:, 0] = features[:, 1] + 1e-6 * rng.normal(size=300)
    detector = Detector(rng.normal(size=(3, 20)), embedding_scale="paper").fit(features)
    # The variance inflation factors, by regressing each feature on the others.
    unit = features / np.linalg.norm(features, axis=1, keepdims=True)
    roots = [np.linalg.norm(column) / residual(unit, k) for k, column in enumerate(unit.T)]
    with caplog.at_level("INFO", logger="pnml"):
        scorer = float32_scorer(detector)
    assert scorer.typical_error == pytest.approx((2 * 20**0.5 + 4) * 2**-24 * sum(roots) / 20**0.5, rel=1e-3)
    assert 2 * scorer.typical_error > LARGEST_ERROR
    assert "scoring in float64: typical error of float32 would be" in caplog.text
    x = features[:50].astype(np.float32)
    np.testing.assert_array_equal(detector.score(x), exact_scores(detector, x).astype(np.float32))


@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
def test_only_doubtful_rows_are_scored_in_float64(library: Any, caplog: pytest.LogCaptureFixture) -> None:
    rng = np.random.default_rng(2)
    basis = np.linalg.qr(rng.normal(size=(30, 30)))[0]
    train = rng.normal(size=(400, 30)) @ (basis * np.geomspace(1, 1.3e-4, 30)).T
    detector = Detector(rng.normal(size=(4, 30)), embedding_scale="paper").fit(train)
    strongest = np.outer([1, 2, 3], basis[:, 0])  # all weak directions cancel
    x = np.vstack([train[:20], strongest]).astype(np.float32)
    _, trusted = float32_scorer(detector).score(x, EPS)
    assert trusted.tolist() == [True] * 20 + [False] * 3
    with caplog.at_level("DEBUG", logger="pnml"):
        found = np.asarray(detector.score(library(x)))
    assert "scored 3 of 23 rows in float64" in caplog.text
    exact = exact_scores(detector, x).astype(np.float32)
    assert (found[20:] == exact[20:]).all()
    assert not (found[:20] == exact[:20]).all()


def test_rows_outside_the_span_of_dead_features_are_certain() -> None:
    _, x = ordinary()
    rng = np.random.default_rng(3)
    wide = np.hstack([x, np.zeros((100, 3), dtype=np.float32)])
    detector = Detector(rng.normal(size=(5, 43)), embedding_scale="paper").fit(wide[:80])
    assert detector.subspace.rank == 40
    inside, outside = wide[80:], wide[80:] + np.float32(1e-3) * np.eye(43, dtype=np.float32)[42]
    for rows in (inside, outside):
        found, trusted = float32_scorer(detector).score(rows, EPS)
        assert trusted.all()
        np.testing.assert_allclose(found, exact_scores(detector, rows), rtol=1e-5)


def test_float64_embeddings_are_scored_in_float64() -> None:
    detector, x = ordinary()
    found = detector.score(x.astype(np.float64))
    assert found.dtype == np.float64
    np.testing.assert_array_equal(found, detector._fitted_scorers[0].regret(x.astype(np.float64), 2.0**-52))


def test_half_precision_embeddings_are_scored_in_float32() -> None:
    detector, x = ordinary()
    half = x.astype(np.float16)
    found = detector.score(half)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, detector.score(half.astype(np.float64)), rtol=1e-5)


@pytest.mark.parametrize("library", [jnp.asarray, torch.tensor])
def test_arrays_on_the_host_are_scored_by_numpy_whatever_their_library(library: Any) -> None:
    detector, x = ordinary()
    # The same program on memory that may be aligned otherwise: equal to float32 rounding.
    np.testing.assert_allclose(np.asarray(detector.score(library(x))), detector.score(x), rtol=1e-4)


@pytest.fixture
def on_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let PyTorch compute on its own tensors, as it does on a GPU."""
    monkeypatch.setattr("pnml.core.batch.to_compute", lambda x: x)


@pytest.mark.usefixtures("on_device")
def test_tensors_on_a_device_are_scored_there_in_float32() -> None:
    detector, x = ordinary()
    found = detector.score(torch.tensor(x))
    assert isinstance(found, torch.Tensor)
    assert not np.array_equal(found, exact_scores(detector, x).astype(np.float32))
    np.testing.assert_allclose(found, exact_scores(detector, x), rtol=1e-5)


@pytest.mark.usefixtures("on_device")
@pytest.mark.parametrize("setting", ["medium", "unknown", "autocast"])
def test_products_of_less_than_float32_are_not_used(setting: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> str:
        raise RuntimeError("set in two ways")

    answers: dict[str, Any] = {"medium": lambda: "medium", "unknown": refuse, "autocast": lambda: "highest"}
    monkeypatch.setattr(torch, "get_float32_matmul_precision", answers[setting])
    detector, x = ordinary()
    with torch.autocast("cpu", enabled=setting == "autocast"):
        found = detector.score(torch.tensor(x))
    np.testing.assert_allclose(found, exact_scores(detector, x), rtol=2**-22)


def test_left_out_training_rows_are_scored_in_float64() -> None:
    detector, x = ordinary()
    exact = detector._fitted_scorers[0].regret(x, EPS, as_if_unseen=True)
    np.testing.assert_array_equal(detector.score(x, leave_one_out=True), exact.astype(np.float32))


def test_more_training_rows_make_new_scorers() -> None:
    detector, x = ordinary()
    before = detector.score(x)
    after = detector.partial_fit(x).score(x)
    assert (after < before).all()
    np.testing.assert_allclose(after, exact_scores(detector, x), rtol=1e-5)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("leave_one_out", [False, True])
def test_a_value_that_is_not_finite_is_named_or_flagged(dtype: Any, leave_one_out: bool) -> None:  # noqa: FBT001
    detector, x = ordinary()
    x = x.astype(dtype)
    x[97, 3] = np.nan
    if leave_one_out:
        with pytest.raises(ValueError, match="row 97 holds nan in column 3"):
            detector.score(x, leave_one_out=True)
    else:
        np.testing.assert_array_equal(np.flatnonzero(np.isnan(detector.score(x))), [97])


def test_a_training_set_of_zeros_is_left_to_float64() -> None:
    detector = Detector(np.eye(3), embedding_scale="natural").fit(np.zeros((5, 3)))
    assert isinstance(detector.model, ScoringModel)
    assert not Float32Scorer(detector.model).is_accurate
    single = detector.score(np.eye(3, dtype=np.float32))
    np.testing.assert_array_equal(single, detector.score(np.eye(3)).astype(np.float32))


def test_rows_too_long_or_short_for_float32_are_scored_in_float64() -> None:
    detector, x = ordinary()
    for factor in (1e-25, 1e25):
        found, trusted = float32_scorer(detector).score(x * np.float32(factor), EPS)
        assert not trusted.any()
        np.testing.assert_allclose(detector.score(x * np.float32(factor)), detector.score(x), rtol=1e-4)
        assert found.shape == (100,)


@pytest.mark.parametrize("size_of_logits", [1.0, 40.0, 1e3])
def test_logits_of_any_size_neither_overflow_nor_vanish(size_of_logits: float) -> None:
    rng = np.random.default_rng(4)
    x = np.abs(rng.normal(size=(200, 10)))
    weight = size_of_logits * np.linalg.qr(rng.normal(size=(10, 10)))[0]
    detector = Detector(weight).fit(x[100:])
    detector._scales = 1.0, 1.0, detector.label_noise  # embeddings of norm 1, whatever "auto" would choose
    found, trusted = float32_scorer(detector).score(x[:100].astype(np.float32), EPS)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[trusted], detector.score(x[:100])[trusted], rtol=LARGEST_ERROR)
    assert trusted.any()
