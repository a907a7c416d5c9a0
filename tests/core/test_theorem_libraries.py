"""The learner on every array library and precision: the same kind out, no warning, and gradients that hold."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import array_api_strict as strict
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given

from pnml import genie, predictive, regret

from .strategies import home, log_probabilities, modest, probabilities, xtgs

if TYPE_CHECKING:
    from collections.abc import Callable

    from .strategies import Matrix

FUNCTIONS = [genie, regret, predictive]
P = np.array([[0.5, 0.5, 0.0], [1.0, 0.0, 0.0], [0.25, 0.25, 0.5], [0.125, 0.75, 0.125]])
LOG_P = np.log(P, out=np.full_like(P, -np.inf), where=P > 0)
T = np.array([0.5, 1.0, 0.0, 0.25])
KINDS: list[tuple[Any, Any]] = [
    (np, np.float16),
    (np, np.float32),
    (np, np.float64),
    (torch, torch.float16),
    (torch, torch.bfloat16),
    (torch, torch.float32),
    (torch, torch.float64),
    (jnp, jnp.float16),
    (jnp, jnp.bfloat16),
    (jnp, jnp.float32),
    (strict, strict.float32),
    (strict, strict.float64),
]


def eps_of(library: Any, dtype: Any) -> float:
    return float(library.finfo(dtype).eps)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize(("library", "dtype"), KINDS)
def test_same_library_and_dtype_out_and_the_numbers_of_numpy(
    library: Any, dtype: Any, function: Callable[..., Any]
) -> None:
    p, t = library.asarray(P, dtype=dtype), library.asarray(T, dtype=dtype)
    result = function(p, t)
    assert type(result) is type(p)
    assert result.dtype == p.dtype
    np.testing.assert_allclose(home(result), function(P, T), rtol=2 * eps_of(library, dtype))
    logs = function(library.asarray(LOG_P, dtype=dtype), t, log=True)
    assert type(logs) is type(p)
    assert logs.dtype == p.dtype
    np.testing.assert_allclose(home(logs), function(P, T), rtol=10 * eps_of(library, dtype))


@pytest.mark.parametrize(("library", "dtype"), KINDS)
def test_one_number_serves_all_samples(library: Any, dtype: Any) -> None:
    result = regret(library.asarray(P, dtype=dtype), 0.5)
    np.testing.assert_allclose(home(result), regret(P, 0.5), rtol=2 * eps_of(library, dtype))
    normalized = regret(library.asarray(P, dtype=dtype), 1, normalized=True)
    expected = regret(P, 1.0) / math.log(3)
    np.testing.assert_allclose(home(normalized), expected, rtol=2 * eps_of(library, dtype))


@modest
@given(probabilities(), xtgs)
def test_float32_agrees_with_float64_to_its_own_rounding(p: Matrix, t: float) -> None:
    single, number = p.astype(np.float32), np.float32(t)
    expected = regret(single.astype(np.float64), np.array(number, dtype=np.float64))
    # (1 − t) log p reaches 103 in float32 before its exponential vanishes, and keeps a relative error of ε.
    bound = 128 * float(np.finfo(np.float32).eps)
    result = regret(single, np.array(number))
    assert result.dtype == np.float32
    assert result == pytest.approx(float(expected), rel=bound, abs=1e-36)


@pytest.mark.parametrize("library", [np, torch])
def test_half_precision_is_only_the_last_rounding(library: Any) -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(1000, 0.1), size=20).astype(np.float16)
    t = rng.uniform(size=20).astype(np.float16)
    expected = regret(p.astype(np.float64), t.astype(np.float64))
    result = home(regret(library.asarray(p), library.asarray(t)))
    np.testing.assert_allclose(result, expected, rtol=6e-4)


def test_a_number_is_not_rounded_to_half_precision() -> None:
    p = np.array([[2.0**-14, 1 - 2.0**-11]], dtype=np.float16)
    expected = regret(p.astype(np.float64), 0.99985)
    assert float(regret(p, 0.99985)[0]) == pytest.approx(float(expected[0]), rel=6e-4)


@pytest.mark.parametrize("order", ["<f8", ">f8"])
def test_the_byte_order_of_float64_costs_no_digits(order: str) -> None:
    assert regret(np.array([[0.3, 0.7]], dtype=order), 0.3) == pytest.approx(regret(np.array([[0.3, 0.7]]), 0.3), 1e-14)


def test_float32_probabilities_with_float64_xtg_keep_their_dtype() -> None:
    result = regret(P.astype(np.float32), T)
    assert result.dtype == np.float32
    np.testing.assert_allclose(result, regret(P, T), rtol=2e-7)


def test_a_device_tensor_meets_a_number_from_numpy() -> None:
    p = torch.tensor([[0.5, 0.5]])
    assert regret(p, np.float64(1.0)).item() == pytest.approx(math.log(4 / 3))


@pytest.mark.parametrize(
    ("p", "t"),
    [(np.array([[0.5, 0.5]]), torch.tensor([1.0])), (torch.tensor([[0.5, 0.5]]), np.array([1.0]))],
    ids=["numpy, torch", "torch, numpy"],
)
def test_xtg_of_another_library_is_converted_or_refused_by_name(p: Any, t: Any) -> None:
    try:
        result = regret(p, t)
    except (ValueError, TypeError) as error:
        assert "torch" in str(error)  # noqa: PT017 - either outcome is sound
    else:
        assert type(result) is type(p)
        assert float(result[0]) == pytest.approx(math.log(4 / 3))


@pytest.mark.parametrize("function", FUNCTIONS)
def test_stays_on_its_device_and_never_looks_at_the_values(function: Callable[..., Any]) -> None:
    for t in (0.5, torch.zeros(4, device="meta")):
        result = function(torch.zeros(4, 3, device="meta"), t)
        assert result.device.type == "meta"
        assert result.shape[0] == 4
    elsewhere = strict.Device("device1")
    assert function(strict.asarray(P, device=elsewhere), 0.5).device == elsewhere


@pytest.mark.parametrize("library", [torch, jnp, strict])
def test_wrong_shapes_are_refused_in_every_library(library: Any) -> None:
    with pytest.raises(ValueError, match=r"shape \(4,\) for probabilities of shape \(4, 3\), got \(3,\)"):
        regret(library.asarray(P), library.asarray(T[:3]))
    with pytest.raises(ValueError, match=r"floating-point array .* of .*int"):
        regret(library.asarray([1, 0]), 0.5)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_torch_gradients_in_the_interior(function: Callable[..., Any], *, log: bool) -> None:
    p = torch.tensor([[0.2, 0.3, 0.5], [0.05, 0.9, 0.05]], dtype=torch.float64)
    p = (p.log() if log else p).requires_grad_()
    t = torch.tensor([0.3, 0.8], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda p, t: function(p, t, log=log), (p, t))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize("t", [0.0, 0.5, 1.0])
def test_torch_gradients_are_finite_at_the_edges(t: float, dtype: torch.dtype, *, log: bool) -> None:
    p = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1.0, 1e-38, 1e-45]], dtype=dtype)
    p = (p.log() if log else p).requires_grad_()
    xtg = torch.full((3,), t, dtype=dtype, requires_grad=True)
    value = regret(p, xtg, log=log).sum() + predictive(p, xtg, log=log)[:, 0].sum()
    value.backward()
    assert p.grad is not None
    assert xtg.grad is not None
    assert torch.isfinite(p.grad).all(), p.grad
    assert torch.isfinite(xtg.grad).all(), xtg.grad


@modest
@given(log_probabilities(), xtgs)
def test_torch_gradient_through_a_softmax_is_finite(log_p: Matrix, t: float) -> None:
    logits = torch.tensor(np.maximum(log_p, -1e4), requires_grad=True)
    xtg = torch.tensor(t, dtype=torch.float64, requires_grad=True)
    regret(torch.log_softmax(logits, -1), xtg, log=True).backward()
    assert logits.grad is not None
    assert xtg.grad is not None
    assert torch.isfinite(logits.grad).all()
    assert torch.isfinite(xtg.grad)
    assert xtg.grad >= 0


def test_jax_compiles_and_differentiates() -> None:
    p = jnp.asarray(P)
    total = jax.jit(jax.value_and_grad(lambda p, t: regret(p, t).sum(), argnums=(0, 1)))
    value, gradients = total(p, jnp.asarray(T))
    assert float(value) == pytest.approx(regret(P, T).sum(), rel=1e-6)
    for gradient in gradients:
        assert np.isfinite(np.asarray(gradient)).all()
