"""Arrays of any library brought home and put back, and rows checked, scaled and cut."""

from __future__ import annotations

import math
from threading import Thread
from typing import Any

import array_api_strict as strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch

import pnml
from pnml.backend import rows as row_tools
from pnml.backend.arrays import (
    DeviceConstants,
    as_array,
    has_float64,
    is_real_floating,
    is_remote,
    like,
    precision,
    to_compute,
    to_numpy,
    working_dtype,
)

LIBRARIES = [np, torch, jnp, strict]
VALUES = [[1.0, 2.0], [3.0, 4.5]]


def test_lists_become_numpy_and_arrays_stay_what_they_are() -> None:
    assert isinstance(as_array([1.0]), np.ndarray)
    for library in LIBRARIES:
        array = library.asarray(VALUES)
        assert as_array(array) is array


@pytest.mark.parametrize("library", LIBRARIES)
def test_there_and_back(library: Any) -> None:
    reference = library.asarray([0.0])
    there = like(reference, np.array(VALUES), library.float32)
    assert type(there) is type(reference)
    assert there.dtype == library.float32
    back = to_numpy(there)
    assert back.dtype == np.float64
    np.testing.assert_array_equal(back, VALUES)


@pytest.mark.parametrize("library", LIBRARIES)
def test_booleans_and_integers_come_home(library: Any) -> None:
    np.testing.assert_array_equal(to_numpy(library.asarray([True, False]), bool), [True, False])
    np.testing.assert_array_equal(to_numpy(library.asarray([3, -7])), [3.0, -7.0])


def test_half_precision_comes_home() -> None:
    for half in (torch.tensor([1.5], dtype=torch.bfloat16), jnp.asarray([1.5], dtype=jnp.bfloat16)):
        np.testing.assert_array_equal(to_numpy(half), [1.5])


def test_home_is_a_copy() -> None:
    for array in (np.array([1.0]), torch.tensor([1.0], dtype=torch.float64), strict.asarray([1.0])):
        to_numpy(array)[0] = 7
        assert float(array[0]) == 1


def test_a_tensor_with_a_gradient_comes_home() -> None:
    np.testing.assert_array_equal(to_numpy(torch.tensor([2.0], requires_grad=True)), [2.0])


def test_real_floating() -> None:
    assert is_real_floating(torch.zeros(1, dtype=torch.bfloat16))
    assert is_real_floating(np.zeros(1, dtype=np.float16))
    assert not is_real_floating(np.zeros(1, dtype=np.complex64))
    assert not is_real_floating(strict.asarray([1]))


def test_precision_is_that_of_the_dtype() -> None:
    assert precision(np.zeros(1)) == 2.0**-52
    assert precision(torch.zeros(1)) == 2.0**-23
    assert precision(jnp.zeros(1)) == 2.0**-23
    assert precision(torch.zeros(1, dtype=torch.bfloat16)) == 2.0**-7


def test_the_working_dtype_is_never_half() -> None:
    half, single, double = (np.zeros(1, dtype=d) for d in (np.float16, np.float32, np.float64))
    assert working_dtype(np, half) is np.float32
    assert working_dtype(np, half, single) is np.float32
    assert working_dtype(np, single, double) is np.float64
    assert working_dtype(np, double.astype(">f8")) is np.float64


def test_float64_is_where_the_library_has_it() -> None:
    assert has_float64(np.zeros(1))
    assert has_float64(torch.zeros(1))
    assert has_float64(strict.asarray([0.0]))
    assert not has_float64(jnp.zeros(1))


def test_constants_are_converted_once_per_library_device_and_dtype() -> None:
    constants = DeviceConstants(np.eye(2))
    (first,) = constants.to(torch.zeros(1))
    (again,) = constants.to(torch.ones(3))
    (double,) = constants.to(torch.zeros(1, dtype=torch.float64))
    (numpy,) = constants.to(np.zeros(1))
    (asked,) = constants.to(torch.zeros(1), torch.float64)
    assert asked is double
    assert first is again
    assert first.dtype == torch.float32
    assert double.dtype == torch.float64
    assert isinstance(numpy, np.ndarray)


def by_chunk(rows: Any, dtype: Any, width: int | None = None) -> list[int]:
    """Return the numbers of rows that chunks have, and check that they cover all rows in order."""
    lengths: list[int] = []

    def note(chunk: Any) -> Any:
        lengths.append(len(chunk))
        assert chunk.dtype == dtype
        return chunk

    whole = row_tools.by_chunk(note, rows, dtype, width=width)
    np.testing.assert_array_equal(np.asarray(whole), np.asarray(rows))
    return sorted(lengths, reverse=True)


@pytest.mark.parametrize("library", [np, torch])
def test_chunks_cover_all_rows_in_order(library: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tools, "_CHUNK_BYTES", 4 * 4 * 3)
    rows = library.reshape(library.arange(21.0, dtype=library.float32), (7, 3))
    assert by_chunk(rows, library.float32) == [4, 3]
    assert by_chunk(rows, library.float64) == [2, 2, 2, 1]
    assert by_chunk(rows, library.float32, width=12) == [1] * 7


def test_tuples_of_arrays_are_concatenated_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tools, "_CHUNK_BYTES", 1)
    rows = np.arange(6.0).reshape(3, 2)
    doubled, first = row_tools.by_chunk(lambda chunk: (2 * chunk, chunk[:, 0]), rows, rows.dtype)
    np.testing.assert_array_equal(doubled, 2 * rows)
    np.testing.assert_array_equal(first, rows[:, 0])


def test_a_row_wider_than_a_chunk_is_a_chunk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tools, "_CHUNK_BYTES", 1)
    assert by_chunk(np.zeros((3, 5)), np.float64) == [1, 1, 1]


def test_another_device_gets_larger_chunks() -> None:
    assert row_tools.chunk_length(torch.empty(100_000, 512, device="meta"), 4) > 100_000
    assert row_tools.chunk_length(torch.empty(1, 512), 4) < 2_000


def test_arrays_on_the_host_are_computed_with_by_numpy() -> None:
    rows = torch.ones(2, 3)
    view = to_compute(rows)
    assert isinstance(view, np.ndarray)
    assert np.shares_memory(view, rows.numpy())
    assert to_compute(torch.ones(2, dtype=torch.bfloat16)).dtype == np.float32
    assert all(isinstance(to_compute(library.asarray([0.0])), np.ndarray) for library in LIBRARIES)
    recorded, remote = torch.ones(2, requires_grad=True), torch.empty(2, device="meta")
    assert to_compute(recorded) is recorded
    assert to_compute(remote) is remote
    with torch.no_grad():
        assert isinstance(to_compute(recorded), np.ndarray)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_norms_are_as_precise_as_asked_for(library: Any, dtype: str) -> None:
    dtype = "float32" if library is jnp else dtype
    x = library.asarray([[3.0, 4.0], [0.0, -2.0], [0.0, 0.0], [1e-4, 0.0]], dtype=getattr(library, dtype))
    norms = row_tools.row_norms(x)
    assert norms.dtype == x.dtype
    np.testing.assert_allclose(np.asarray(norms), [5, 2, 0, float(x[3, 0])], rtol=1e-15 if dtype == "float64" else 1e-6)
    if library is not jnp:
        wide = row_tools.plain_norms(x, library.float64)
        assert wide.dtype == library.float64
        np.testing.assert_allclose(np.asarray(wide), [5, 2, 0, float(x[3, 0])], rtol=1e-15)


def test_norms_of_half_precision_are_not_computed_in_it() -> None:
    for x in (np.full((1, 4), 60_000, dtype=np.float16), torch.full((1, 4), 60_000.0, dtype=torch.float16)):
        assert float(row_tools.row_norms(x)[0]) == 2 * float(x[0, 0])


@pytest.mark.parametrize("library", [np, torch, strict])
def test_norms_neither_overflow_nor_vanish(library: Any) -> None:
    for scale in (1e-200, 1e200):
        (norm,) = row_tools.row_norms(library.asarray([[3 * scale, 4 * scale]], dtype=library.float64))
        assert float(norm) == pytest.approx(5 * scale, rel=1e-14, abs=0)
    for scale in (1e-37, 1e37):
        (norm,) = row_tools.row_norms(library.asarray([[3 * scale, -3 * scale]], dtype=library.float32))
        assert float(norm) == pytest.approx(math.sqrt(18) * scale, rel=1e-6, abs=0)


@pytest.mark.parametrize("library", LIBRARIES)
def test_squares(library: Any) -> None:
    np.testing.assert_allclose(np.asarray(row_tools.squares(library.asarray([[3.0, 4.0], [0.0, -2.0]]))), [25, 4], 1e-6)


def test_only_another_device_is_remote() -> None:
    assert not any(is_remote(library.asarray([0.0])) for library in LIBRARIES)
    assert is_remote(torch.empty(1, device="meta"))


def test_values_are_looked_at_while_another_thread_compiles() -> None:
    refused: list[str] = []

    def work() -> None:
        try:
            pnml.regret(torch.tensor([[0.5, 0.9]]), torch.tensor([0.1]))
        except ValueError as error:
            refused.append(str(error))

    def backend(graph: torch.fx.GraphModule, _example: list[torch.Tensor]) -> Any:
        thread = Thread(target=work)
        thread.start()
        thread.join()
        return graph.forward

    torch.compile(torch.sin, backend=backend)(torch.ones(2))
    assert refused
    assert "probabilities must sum to 1" in refused[0]
