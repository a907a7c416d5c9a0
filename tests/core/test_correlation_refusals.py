"""What the statistic refuses: it names the row and the value, and stays as it was."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import array_api_strict as strict
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from pnml import Correlation
from pnml.backend import rows as row_tools

if TYPE_CHECKING:
    from pathlib import Path

    from .strategies import Matrix

ROWS = np.array([[1.0, 2.0, -3.0], [0.5, 0.0, 4.0], [2.0, -1.0, 0.25], [8.0, 1.0, 1.0]])
LIBRARIES = [np, torch, jnp, strict]


def statistic() -> Correlation:
    return Correlation().update(ROWS)


def bad_batch(row: int, value: float) -> Matrix:
    batch = np.ones((9, 3))
    batch[row, 1] = value
    batch[row + 1, 0] = value
    return batch


@pytest.mark.parametrize("chunk_bytes", [1 << 25, 48])
@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_value_that_is_not_finite_is_named_and_changes_nothing(
    value: float, library: Any, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_tools, "_CHUNK_BYTES", chunk_bytes)
    state = statistic()
    with pytest.raises(ValueError, match=f"row 7 holds {value} in column 1"):
        state.update(library.asarray(bad_batch(7, value)))
    assert state == statistic()
    assert state.mean_norm == statistic().mean_norm


@pytest.mark.parametrize("chunk_bytes", [1 << 25, 48])
@pytest.mark.parametrize("library", LIBRARIES)
def test_rows_of_norm_zero_are_left_out_and_counted(
    library: Any, chunk_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_tools, "_CHUNK_BYTES", chunk_bytes)
    batch = np.ones((9, 3))
    expected = Correlation(unit_norm=True).update(batch[:7])
    batch[7:] = 0
    state = Correlation(unit_norm=True).update(library.asarray(batch))
    assert (state.count, state.left_out, expected.left_out) == (7, 2, 0)
    np.testing.assert_allclose(state.matrix, expected.matrix, rtol=1e-15)
    assert state.mean_norm == pytest.approx(expected.mean_norm, rel=1e-15)
    assert (state + state).left_out == 4
    nothing = Correlation(unit_norm=True).update(library.asarray(batch[7:]))
    assert (nothing.count, nothing.left_out, nothing.n_features) == (0, 2, 3)
    assert [(one.count, one.left_out) for one in (state + nothing, nothing + state)] == [(7, 4)] * 2
    assert Correlation().update(library.asarray(batch)).count == 9


@pytest.mark.parametrize("scale", [1e-200, 1e200])
def test_unit_norm_of_extreme_rows(scale: float) -> None:
    expected = Correlation(unit_norm=True).update(ROWS).matrix
    np.testing.assert_allclose(Correlation(unit_norm=True).update(ROWS * scale).matrix, expected, rtol=1e-14)


def test_rows_whose_squares_overflow_are_refused() -> None:
    for rows in (ROWS * 1e200, torch.tensor(ROWS * 1e200)):
        state = statistic()
        with pytest.raises(ValueError, match="row 0"):
            state.update(rows)
        assert state == statistic()


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((2, 4), "expected rows of 3 features, got 4"),
        ((3,), r"2-D batch of shape \(rows, features\), got shape \(3,\)"),
        ((2, 3, 1), r"got shape \(2, 3, 1\)"),
        ((), r"got shape \(\)"),
    ],
)
def test_wrong_shapes_change_nothing(library: Any, shape: tuple[int, ...], message: str) -> None:
    state = statistic()
    with pytest.raises(ValueError, match=message):
        state.update(library.ones(shape))
    assert state == statistic()


@pytest.mark.parametrize("rows", [[[1j, 0, 0]], [["a", "b", "c"]], [[None, 1, 2]]])
def test_what_is_no_real_number_is_refused(rows: list[list[Any]]) -> None:
    state = statistic()
    with pytest.raises(ValueError, match="real numbers"):
        state.update(np.array(rows))
    assert state == statistic()


def test_merge_refusals() -> None:
    with pytest.raises(ValueError, match="unit norm"):
        _ = statistic() + Correlation(unit_norm=True).update(ROWS)
    with pytest.raises(ValueError, match="width 3 and 2"):
        _ = statistic() + Correlation().update(np.ones((1, 2)))
    with pytest.raises(TypeError):
        _ = statistic() + 1  # type: ignore[operator]


def test_merge_refuses_another_declared_width_though_empty() -> None:
    for first, second in [
        (Correlation(2), statistic()),
        (statistic(), Correlation(2)),
        (Correlation(2), Correlation(3)),
    ]:
        with pytest.raises(ValueError, match="width"):
            _ = first + second


def test_load_refusals(tmp_path: Path) -> None:
    path = tmp_path / "statistic"
    with pytest.raises(FileNotFoundError):
        Correlation.load(path)
    save_file({"sum": np.eye(2)}, path)
    with pytest.raises(ValueError, match="did not write"):
        Correlation.load(path)
    statistic().save(path)
    content = path.read_bytes()
    path.write_bytes(content[:-8])
    with pytest.raises(ValueError, match="not a whole safetensors file"):
        Correlation.load(path)
    path.write_bytes(content.replace(b'"version":"5"', b'"version":"9"'))
    with pytest.raises(ValueError, match=r"pnml\.correlation format 9, .* reads format 5: make it again"):
        Correlation.load(path)
