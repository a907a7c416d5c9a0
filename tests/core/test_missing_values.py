"""Rows that are not finite: flagged when they are scored, refused by name when they are learned from."""

from __future__ import annotations

from typing import Any

import array_api_strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from pnml import Detector
from pnml.backend.arrays import to_numpy

WEIGHT = np.random.default_rng(0).normal(size=(5, 12))
TRAIN = np.random.default_rng(1).normal(size=(200, 12))
HELD = np.random.default_rng(2).normal(size=(99, 12))
FEATURES = np.random.default_rng(3).normal(size=(200, 4))

LIBRARIES: dict[str, Any] = {
    "numpy": np.asarray,
    "torch": torch.asarray,
    "jax": jnp.asarray,
    "strict": array_api_strict.asarray,
}


def with_holes(dtype: Any) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Give rows, and which of them are finite."""
    rows = TRAIN[:6].astype(dtype)
    rows[1, 3], rows[2, 0], rows[4] = np.nan, np.inf, -np.inf
    return rows, np.array([True, False, False, True, False, True])


@pytest.mark.parametrize("library", list(LIBRARIES))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", ["auto", "paper", "natural"])
def test_rows_that_are_not_finite_are_flagged_and_the_others_are_as_without_them(
    scale: Any, dtype: Any, library: str
) -> None:
    detector = Detector(WEIGHT, embedding_scale=scale).fit(TRAIN)
    detector.calibrate(HELD, false_alarm_rate=0.05)
    rows, finite = with_holes(dtype)
    result = detector(LIBRARIES[library](rows))
    alone = detector(LIBRARIES[library](rows[finite]))
    table, expected = result.to_table(), alone.to_table()
    assert np.isnan(table["regret"]).tolist() == (~finite).tolist()
    assert np.isnan(to_numpy(detector.score(LIBRARIES[library](rows)))).tolist() == (~finite).tolist()
    assert table["is_ood"][~finite].all()
    np.testing.assert_allclose(table["p_value"][~finite], 1 / 100, rtol=1e-6)
    for name, column in expected.items():
        np.testing.assert_allclose(table[name][finite], column, rtol=1e-5, atol=1e-9, err_msg=name)
    for name in ("leverage_by_layer", "pnml_probabilities", "probabilities", "logits"):
        whole, part = to_numpy(getattr(result, name)), to_numpy(getattr(alone, name))
        np.testing.assert_allclose(whole[finite], part, rtol=1e-4, atol=1e-7, err_msg=name)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_features_that_are_not_finite_are_flagged(dtype: Any, bad: float) -> None:
    detector = Detector(WEIGHT).fit(TRAIN, features=[FEATURES])
    detector.calibrate(TRAIN, features=[FEATURES], leave_one_out=True)
    features = FEATURES[:4].astype(dtype)
    features[2, 1] = bad
    result = detector(TRAIN[:4].astype(dtype), features=[features])
    assert np.isnan(result.regret).tolist() == [False, False, True, False]
    assert result.is_ood is not None
    assert bool(result.is_ood[2])
    with pytest.raises(ValueError, match=rf"row 2 holds {bad} in column 1 of features\[0\]: every value must"):
        detector.calibrate(TRAIN[:4].astype(dtype), features=[features], false_alarm_rate=0.3)


def test_all_rows_may_be_missing() -> None:
    detector = Detector(WEIGHT).fit(TRAIN)
    assert np.isnan(detector.score(np.full((3, 12), np.nan))).all()
    assert np.isnan(detector.score(np.full((3, 12), np.nan, dtype=np.float32))).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_learned_from_must_be_finite(dtype: Any) -> None:
    detector = Detector(WEIGHT).fit(TRAIN)
    threshold = detector.calibrate(HELD)
    held = HELD.astype(dtype)
    held[42, 7] = np.nan
    for learn in (detector.calibrate, detector.fit, detector.partial_fit):
        with pytest.raises(ValueError, match="row 42 holds nan in column 7: every value must be finite"):
            learn(held)
    with pytest.raises(ValueError, match="row 42 holds nan in column 7"):
        detector.score(held, leave_one_out=True)
    assert detector.threshold == threshold


@pytest.mark.parametrize("library", list(LIBRARIES))
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", ["auto", "paper", "natural"])
def test_no_rows_give_an_empty_result(scale: Any, dtype: Any, library: str) -> None:
    detector = Detector(WEIGHT, embedding_scale=scale).fit(TRAIN)
    detector.calibrate(HELD)
    result = detector(LIBRARIES[library](np.empty((0, 12), dtype=dtype)))
    assert len(result) == 0
    assert {name: column.shape for name, column in result.to_table().items()} == dict.fromkeys(result.to_table(), (0,))
    assert result.logits.shape == result.probabilities.shape == result.pnml_probabilities.shape == (0, 5)
    assert result.leverage_by_layer.shape == (0, len(detector.block_names))
    assert list(result) == []
    assert repr(result).startswith("Result(0 samples, 0 out-of-distribution")
