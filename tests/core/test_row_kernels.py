"""Rows scaled and hashed by kernels: in Triton's interpreter, and where they are not used.

Run as a program, this computes the cases below in the interpreter, which has to be chosen before Triton is imported.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pnml import Correlation, _products, _row_kernels, _rows, sample
from pnml.sample import RowSample, _keys

if TYPE_CHECKING:
    from pathlib import Path

Matrix = np.ndarray[Any, Any]

CASES = [  # blocks are of 2048 entries, and of 32 rows where the hash reads 64 columns
    (1, 1, torch.float64),
    (70, 17, torch.float32),
    (33, 64, torch.float16),
    (40, 65, torch.bfloat16),
    (65, 300, torch.float32),
    (9, 512, torch.float64),
    (5, 2100, torch.float32),
]


def made(rows: int, width: int, dtype: torch.dtype) -> torch.Tensor:
    """Give rows with gaps between them, every third of which is nearly empty where the hash looks first."""
    random = torch.Generator().manual_seed(width)
    found = torch.randn(rows, width, generator=random, dtype=torch.float64)
    found[::3, :: max(1, width // 64)] *= torch.rand(len(found[::3]), 1, generator=random) < 0.5
    found[::3, -1] = torch.arange(1, 1 + len(found[::3]))
    return torch.stack([found, -found], dim=1).to(dtype)[:, 0]


def interpret(path: str) -> None:
    """Scale and hash all cases, and rows that lie the other way round."""
    found: dict[str, Any] = {}
    for k, case in enumerate(CASES):
        x = made(*case)
        for name, rows in {"": x, "turned ": x.T.contiguous().T}.items():
            products, lengths = _products.sum_of_products(rows, unit_norm=True)
            found[f"{name}products {k}"], found[f"{name}norms {k}"] = products.numpy(), lengths.numpy()
            found[f"{name}keys {k}"] = RowSample.of(rows).keys.numpy()
        found[f"plain {k}"] = _products.sum_of_products(x, unit_norm=False)[0].numpy()
    many = torch.randn(6000, 3, generator=torch.Generator().manual_seed(0))
    fitted = Correlation(unit_norm=True).update(many)
    assert fitted.sample is not None
    found |= {"many": many.numpy(), "matrix": fitted.matrix, **fitted.sample.arrays()}
    np.savez(path, **found)


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Matrix]:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    path: Path = tmp_path_factory.mktemp("kernels") / "found.npz"
    chosen = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-W", "ignore", __file__, str(path)], check=True, env=chosen)
    return dict(np.load(path))


@pytest.mark.parametrize("k", range(len(CASES)), ids=map(str, CASES))
@pytest.mark.parametrize("name", ["", "turned "])
def test_rows_are_measured_scaled_and_hashed(interpreted: dict[str, Matrix], k: int, name: str) -> None:
    x = made(*CASES[k]).double().numpy()
    norms = np.sqrt((x**2).sum(axis=1))
    np.testing.assert_allclose(interpreted[f"{name}norms {k}"], norms, rtol=1e-14)
    scaled = x / norms[:, None]
    np.testing.assert_allclose(interpreted[f"{name}products {k}"], scaled.T @ scaled, rtol=1e-12, atol=1e-14)
    np.testing.assert_array_equal(interpreted[f"{name}keys {k}"], np.sort(_keys(x)))
    np.testing.assert_allclose(interpreted[f"plain {k}"], x.T @ x, rtol=1e-12, atol=1e-12)


def test_a_fit_by_kernels_is_that_of_the_host(interpreted: dict[str, Matrix]) -> None:
    fitted = Correlation(unit_norm=True).update(interpreted["many"])
    assert fitted.sample is not None
    np.testing.assert_allclose(interpreted["matrix"], fitted.matrix, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(interpreted["sample_keys"], fitted.sample.keys)
    np.testing.assert_allclose(interpreted["sample"], fitted.sample.rows, rtol=1e-6)


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """Rows as if on a GPU whose kernels work."""
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    monkeypatch.setattr(_row_kernels, "scale_rows", lambda *_, **__: None)
    monkeypatch.setattr(_rows, "find_spec", lambda _: True)
    monkeypatch.setattr(_rows, "_runs_kernels", _rows._runs_kernels.__wrapped__)  # anew for every test
    with FakeTensorMode():
        return torch.empty(5, 3, device="cuda")


def suits(rows: Any) -> bool:
    with FakeTensorMode():
        return _rows.suit_kernels(rows)


def test_kernels_are_for_nvidia_gpus(taken: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    assert suits(taken)
    assert suits(taken.half())
    assert not suits(np.ones((5, 3)))
    assert not suits(torch.ones(5, 3))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (7, 5))
    assert not suits(taken)


def test_without_triton_there_are_none(taken: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_rows, "find_spec", lambda _: None)
    assert not suits(taken)


def test_what_triton_lacks_does_not_stop_a_fit(taken: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("Failed to find C compiler")

    monkeypatch.setattr(_row_kernels, "scale_rows", fails)
    assert not suits(taken)


if __name__ == "__main__":
    away: dict[str, Any] = {"on_host": lambda _: False, "suit_kernels": lambda _: True}  # as if it were a GPU
    with patch.multiple(_products, **away), patch.multiple(sample, **away):
        interpret(sys.argv[1])
