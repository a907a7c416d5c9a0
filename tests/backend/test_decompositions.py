"""Decompositions on the CPU and on a GPU."""

from __future__ import annotations

import logging
import sys
from typing import Any

import numpy as np
import pytest
import torch

from pnml.backend import decompositions
from pnml.backend.decompositions import eigh, triangular_factor

EPS = np.finfo(np.float64).eps
ROUTES = [
    "numpy",
    "torch",
    pytest.param("gpu", marks=pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")),
]


def take(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let large matrices, which are of 40 rows here, be decomposed by NumPy, by PyTorch on the CPU or on a GPU."""
    monkeypatch.setattr(decompositions, "_SMALL", 39)
    device = {"numpy": None, "torch": torch.device("cpu"), "gpu": torch.device("cuda")}[route]
    monkeypatch.setattr(decompositions, "_gpu", lambda: device)


def rows(count: int, width: int) -> Any:
    return np.random.default_rng(0).normal(size=(count, width)) * np.geomspace(1, 1e-4, width)


@pytest.mark.parametrize("route", ROUTES)
def test_eigenvectors_are_orthonormal_and_give_the_matrix_back(route: str, monkeypatch: pytest.MonkeyPatch) -> None:
    take(route, monkeypatch)
    x = rows(60, 40)
    values, vectors = eigh(x.T @ x)
    assert (np.diff(values) >= 0).all()
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(40), rtol=0, atol=40 * EPS)
    np.testing.assert_allclose((vectors * values) @ vectors.T, x.T @ x, rtol=0, atol=40 * EPS * values[-1])


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("count", [40, 55])
def test_a_triangular_factor_has_the_products_of_its_matrix(
    count: int, route: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    take(route, monkeypatch)
    x = rows(count, 50)
    factor = triangular_factor(x)
    assert factor.shape == (min(count, 50), 50)
    assert not np.tril(factor, -1).any()
    np.testing.assert_allclose(factor.T @ factor, x.T @ x, rtol=0, atol=50 * EPS * np.linalg.norm(x) ** 2)


def test_small_matrices_are_decomposed_by_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    take("torch", monkeypatch)
    monkeypatch.setattr(torch.linalg, "eigh", lambda _: pytest.fail("PyTorch was asked"))
    values, _ = eigh(np.diag([2.0, 1.0]))
    np.testing.assert_array_equal(values, [1, 2])


def test_a_gpu_with_too_little_memory_leaves_the_work_to_numpy(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    take("torch", monkeypatch)

    def fail(_: torch.Tensor) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(torch.linalg, "eigh", fail)
    with caplog.at_level(logging.INFO, "pnml"):
        values, _ = eigh(np.diag(np.arange(40.0)))
    np.testing.assert_allclose(values, np.arange(40), rtol=0, atol=40 * EPS * 40)
    assert caplog.messages == ["decomposing 40 features on the CPU instead of the GPU: CUDA out of memory"]


def test_only_a_gpu_that_is_in_use_already_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
    assert decompositions._gpu() == torch.device("cuda")
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    assert decompositions._gpu() is None
    monkeypatch.delitem(sys.modules, "torch")
    assert decompositions._gpu() is None
