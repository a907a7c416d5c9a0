"""What is no distribution gets no number: refused on the host, NaN where values cannot be looked at."""

from __future__ import annotations

import math
from typing import Any

import array_api_strict as strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from pnml import genie, predictive, regret

from .strategies import modest, seeds

FUNCTIONS = [genie, regret, predictive]
LIBRARIES: list[Any] = [np, torch, jnp, strict]
NO_DISTRIBUTIONS = [
    [math.nan, math.nan],
    [math.nan, 0.5],
    [0.9, 0.9],
    [0.1, 0.1],
    [0.0, 0.0],
    [2.0, -1.0],
    [math.inf, -math.inf],
]


@pytest.fixture
def unreadable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tensors be as on a GPU, where to look at a value is to wait for it."""
    monkeypatch.setattr("pnml.core.theorem.is_remote", lambda array: isinstance(array, torch.Tensor))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("p", NO_DISTRIBUTIONS)
def test_what_is_no_distribution_is_refused_in_every_library(p: list[float], library: Any, function: Any) -> None:
    rows = library.asarray([[0.5, 0.5], p])
    with pytest.raises(ValueError, match=r"probabilities must (lie in \[0, 1\]|sum to 1 over the last axis), got"):
        function(rows, library.asarray([0.5, 0.5]))


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("log_p", [[math.nan, -1.0], [-0.1, -0.1], [-3.0, -3.0], [-math.inf, -math.inf], [800.0, 0.0]])
def test_logarithms_of_no_distribution_are_refused_in_every_library(
    log_p: list[float], library: Any, function: Any
) -> None:
    with pytest.raises(ValueError, match=r"probabilities must (be at most 0|sum to 1 over the last axis), got"):
        function(library.asarray([log_p]), library.asarray([0.5]), log=True)


def test_the_sum_is_named_and_what_to_pass_instead() -> None:
    with pytest.raises(ValueError, match=r"a sum of 1\.8: of logits z pass their softmax, exp\(z\) / sum\(exp\(z\)\)"):
        regret(np.array([[0.5, 0.5], [0.9, 0.9]]), 0.5)
    with pytest.raises(ValueError, match=r"a sum of 0\.2: of logits z pass their softmax, z - logsumexp\(z\)"):
        regret(np.log([0.1, 0.1]), 0.5, log=True)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("t", [math.nan, -0.1, 1.1])
def test_xtg_out_of_range_is_refused_in_every_library(t: float, library: Any) -> None:
    with pytest.raises(ValueError, match=r"xtg must lie in \[0, 1\], got"):
        regret(library.asarray([[0.5, 0.5]]), library.asarray([t]))


@pytest.mark.usefixtures("unreadable")
@pytest.mark.parametrize("log", [False, True])
def test_samples_that_cannot_be_looked_at_get_nan_and_the_others_their_number(log: bool) -> None:  # noqa: FBT001
    good = [[0.5, 0.5], [0.25, 0.75], [0.5, 0.5], [0.0, 1.0]]
    p = torch.tensor([*NO_DISTRIBUTIONS, *good], dtype=torch.float64)
    t = torch.full((len(p),), 0.5, dtype=torch.float64)
    t[-2] = math.nan
    expected = regret(np.array(good), np.full(4, 0.5))
    expected[-2] = math.nan
    for function in FUNCTIONS:
        found = function(p.log() if log else p, t, log=log)
        assert found[: len(NO_DISTRIBUTIONS)].isnan().all()
        if function is regret:
            np.testing.assert_allclose(found[len(NO_DISTRIBUTIONS) :], expected, rtol=1e-12)


def test_samples_in_a_graph_and_in_a_transformation_get_nan() -> None:
    p, t = jnp.asarray([[0.5, 0.5], [0.9, 0.9], [math.nan, 0.5]]), jnp.asarray([1.0, 1.0, 1.0])
    jitted = np.asarray(jax.jit(regret)(p, t))
    mapped = torch.vmap(regret)(torch.tensor(np.asarray(p)), torch.tensor(np.asarray(t))).numpy()
    for found in (jitted, mapped):
        assert np.isnan(found).tolist() == [False, True, True]
        assert found[0] == pytest.approx(math.log(4 / 3), rel=1e-6)


@modest
@given(seeds, st.sampled_from([torch.float16, torch.bfloat16]), st.sampled_from([2, 10, 1000, 20000]), st.booleans())
def test_softmax_in_half_precision_passes(seed: int, dtype: torch.dtype, n_classes: int, log: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(seed)
    logits = torch.tensor(rng.normal(size=(20, n_classes)) * rng.choice([0.0, 0.1, 3.0, 30.0], size=(20, 1)))
    function = torch.log_softmax if log else torch.softmax
    for p in (function(logits, dim=-1).to(dtype), function(logits.to(dtype), dim=-1)):
        for given_p in (p, p.double()) if not log else (p,):
            assert regret(given_p, 0.5, log=log).isfinite().all()


def test_rounded_probabilities_pass() -> None:
    assert regret(np.array([0.33, 0.33, 0.335]), 0.5) > 0
    with pytest.raises(ValueError, match=r"got a sum of 0\.98"):
        regret(np.array([0.33, 0.33, 0.32]), 0.5)


def test_only_logarithms_may_miss_the_sum_by_what_rounding_moves_them() -> None:
    n_classes = 20_000
    uniform = torch.full((n_classes,), -math.log(n_classes), dtype=torch.bfloat16)
    assert abs(uniform.double().exp().sum() - 1) > 0.02  # of numbers near 10 that have eight bits
    assert regret(uniform, 0.5, log=True).isfinite()
    with pytest.raises(ValueError, match=r"got a sum of 1\.0[45]"):
        regret(torch.full((n_classes,), 1.05 / n_classes, dtype=torch.bfloat16), 0.5)
