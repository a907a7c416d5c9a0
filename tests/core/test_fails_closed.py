"""No value of a sample, however small, large or missing, gets it past a detector unanswered: no number is flagged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pnml import Correlation, Detector
from pnml.core.calibration import calibrate
from pnml.core.multilabel import MultiLabelDetector

from .strategies import modest, seeds

WEIGHT = np.random.default_rng(0).normal(size=(5, 12))
TRAIN = np.random.default_rng(1).normal(size=(200, 12))
HELD = np.random.default_rng(2).normal(size=(99, 12))
FEATURES = np.random.default_rng(3).normal(size=(200, 4))
SCALES = ["auto", "paper", "natural"]
DETECTORS = {scale: Detector(WEIGHT, embedding_scale=scale).fit(TRAIN) for scale in SCALES}  # type: ignore[arg-type]
for one in DETECTORS.values():
    one.calibrate(HELD)

HARD = [math.nan, math.inf, -math.inf, 0.0, 5e-324, 1e-310, 2.3e-308, 1e-45, 1e38, 3.4e38, 1e155, 1e308, -1.7e308]


@modest
@given(
    st.sampled_from(SCALES),
    st.lists(st.sampled_from(HARD) | st.floats(width=64), min_size=12, max_size=12),
    st.sampled_from([np.float16, np.float32, np.float64]),
    st.sampled_from([np.asarray, torch.tensor]),
)
def test_every_sample_has_a_regret_in_range_or_is_flagged(
    scale: str, values: list[float], dtype: Any, library: Any
) -> None:
    with np.errstate(over="ignore"):
        row = np.array([values]).astype(dtype)
    result = DETECTORS[scale](library(row))
    table = result.to_table()
    if math.isnan(table["regret"][0]):
        assert table["is_ood"][0]
        assert table["p_value"][0] == pytest.approx(1 / 100, rel=1e-6)
    else:
        assert np.isfinite(row).all()
        assert 0 <= table["regret"][0] <= np.nextafter(np.float32(math.log(5)), np.float32(2))


@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
@pytest.mark.parametrize("size", [1.7e308, 1e308, 0.9e308])
@pytest.mark.parametrize("scale", SCALES)
def test_rows_whose_norm_or_logits_overflow_are_flagged(scale: str, size: float, library: Any) -> None:
    x = np.sign(TRAIN[:50]) * size
    result = DETECTORS[scale](library(x))
    assert np.asarray(result.is_ood).all()
    np.testing.assert_allclose(np.asarray(result.p_value), 1 / 100, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", ["auto", "paper"])
def test_denormal_rows_keep_their_regret_or_are_flagged(scale: str, dtype: Any) -> None:
    smallest = float(np.finfo(dtype).smallest_subnormal)
    whole = np.round(8 * HELD)  # whole numbers times a power of two keep every digit, denormal or not
    detector, x = DETECTORS[scale], (whole * smallest).astype(dtype)
    result, expected = detector(x), detector.score(whole)
    assert result.is_ood is not None
    if dtype == np.float32:  # float64 has their directions
        np.testing.assert_allclose(result.regret, expected, rtol=1e-5)
    else:
        assert result.is_ood.all()
        np.testing.assert_allclose(result.regret, math.log(5), rtol=1e-12)


@modest
@given(seeds, st.integers(-950, 950))
def test_regrets_do_not_depend_on_the_length_of_embeddings_alone(seed: int, exponent: int) -> None:
    x = np.random.default_rng(seed).normal(size=(3, 12))
    for scale in ("auto", "paper"):
        np.testing.assert_allclose(DETECTORS[scale].score(x * 2.0**exponent), DETECTORS[scale].score(x), rtol=1e-9)


@pytest.mark.parametrize("factor", [1e-200, 1e-3, 20.0, 255.0, 1e200])
def test_another_length_of_a_layer_is_strange(factor: float) -> None:
    detector = Detector(WEIGHT).fit(TRAIN, features=[FEATURES])
    usual, longer = (detector(TRAIN[:50], features=[FEATURES[:50] * by]) for by in (1.0, factor))
    assert (longer.leverage_by_layer[:, 2] > 0).all()
    assert (longer.regret > usual.regret).all()


def test_features_whose_norm_overflows_are_flagged() -> None:
    detector = Detector(WEIGHT).fit(TRAIN, features=[FEATURES])
    detector.calibrate(TRAIN, features=[FEATURES], leave_one_out=True)
    features = FEATURES[:3].copy()
    features[1] = 1.7e308
    result = detector(TRAIN[:3], features=[features])
    assert np.isnan(result.regret).tolist() == [False, True, False]
    assert result.is_ood is not None
    assert bool(result.is_ood[1])


def test_several_labels_whose_norm_overflows_are_flagged() -> None:
    detector = MultiLabelDetector(np.vstack([np.zeros(12), WEIGHT])).fit(TRAIN)
    detector.calibrate(HELD)
    result = detector(np.vstack([HELD[:1], np.full((1, 12), 1e308), np.full((1, 12), np.nan)]))
    assert result.is_ood is not None
    assert np.asarray(result.is_ood)[1:].all()


def test_training_rows_whose_norm_overflows_are_refused() -> None:
    rows = TRAIN[:5].copy()
    rows[3] = 1e308
    with pytest.raises(ValueError, match=r"row 3 has a norm beyond 1\.8e\+308.*scale the rows down"):
        Correlation(unit_norm=True).update(rows)
    with pytest.raises(ValueError, match=r"row 3 has a norm beyond 1\.8e\+308"):
        Detector(WEIGHT).fit(TRAIN[:5], features=[rows])


def test_calibration_refuses_rows_that_overflow() -> None:
    detector, held = Detector(WEIGHT).fit(TRAIN), HELD.copy()
    held[7] = 1e308
    with pytest.raises(ValueError, match="score 7 is nan: calibration scores must be finite"):
        detector.calibrate(held)
    assert detector.threshold is None


@pytest.mark.parametrize("by", [None, "prediction"])
@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
def test_a_threshold_flags_what_is_no_number(library: Any, by: Any) -> None:
    threshold = calibrate(np.arange(99.0), predictions=np.arange(99) % 2, by=by)
    scores, classes = np.array([0.0, np.nan, np.inf, 98.0]), np.array([0, 1, 1, 0])
    found = threshold.is_ood(library(scores), library(classes))
    assert np.asarray(found).tolist() == [False, True, True, True]
