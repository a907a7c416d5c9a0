"""Scoring: exact at every condition, the same by every way, and never waiting for a device."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import mpmath  # type: ignore[import-untyped]
import numpy as np
import pytest
import torch

from pnml import Correlation, Detector, Subspace
from pnml.backend import rows as row_tools
from pnml.core import scorer
from pnml.core.scaling import EMBEDDING_SCALES
from pnml.core.scorer import Chunk, Scorer
from pnml.core.subspace import eigendecompose, leverage

from .strategies import EPS, with_singular_values

if TYPE_CHECKING:
    from .strategies import Matrix


def exact_regrets(weight: Matrix, bias: Matrix, rows: Matrix, x: Matrix) -> Matrix:
    """Write section 3 down in 50 digits: rows of norm 1, S inverted, p, genies, their sum."""
    with mpmath.workdps(50):

        def unit(row: Matrix) -> mpmath.matrix:
            column = mpmath.matrix([mpmath.mpf(float(v)) for v in row])
            return column / mpmath.sqrt(mpmath.fsum(v**2 for v in column))

        X = mpmath.matrix(len(rows), rows.shape[1])
        for n, row in enumerate(rows):
            X[n, :] = unit(row).T
        inverse = (X.T * X) ** -1
        regrets = []
        for row in x:
            column = unit(row)
            h = (column.T * inverse * column)[0]
            t = h / (1 + h)
            logits = [
                mpmath.fsum(float(w) * v for w, v in zip(c, column, strict=True)) + float(b)
                for c, b in zip(weight, bias, strict=True)
            ]
            weights = [mpmath.exp(z) for z in logits]
            p = [w / mpmath.fsum(weights) for w in weights]
            regrets.append(float(mpmath.log(mpmath.fsum(v / (v + v**t * (1 - v)) for v in p))))
    return np.array(regrets)


@pytest.mark.parametrize("condition", [1.0, 1e2, 1e4, 1e6, 1e8, 1e10, 1e12])
@pytest.mark.parametrize("shape", [(12, 5), (30, 8)])
def test_error_of_the_regret_grows_no_faster_than_the_condition(shape: tuple[int, int], condition: float) -> None:
    rng = np.random.default_rng(7)
    rows = with_singular_values(np.geomspace(1, condition**-0.5, shape[1]), shape, rng)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    weight, bias = rng.normal(size=(3, shape[1])), rng.normal(size=3)
    detector = Detector(weight, bias, embedding_scale="paper").fit(rows)
    values = detector.subspace.eigenvalues
    x = np.vstack([rows[:4], rng.normal(size=(4, shape[1]))])
    bound = 10 * EPS * max(float(values[0] / values[-1]), 1)
    np.testing.assert_allclose(detector.score(x), exact_regrets(weight, bias, rows, x), rtol=bound)


@pytest.mark.parametrize("condition", [1.0, 1e6, 1e12])
def test_the_triangular_whitening_is_as_exact(condition: float) -> None:
    """Wide enough for blocks; S is taken as exact, and its inverse known from how it was made."""
    width = 150
    rng = np.random.default_rng(8)
    basis = np.linalg.qr(rng.normal(size=(width, width)))[0].astype(np.longdouble)
    for _ in range(2):  # to orthogonality in longdouble
        basis = basis @ (1.5 * np.eye(width) - 0.5 * (basis.T @ basis))
    values = np.geomspace(1, 1 / condition, width).astype(np.longdouble)
    matrix = ((basis * values) @ basis.T).astype(np.float64)
    matrix = (matrix + matrix.T) / 2
    subspace = Subspace(*eigendecompose(matrix), 1000)
    assert subspace.rank == width > 64
    np.testing.assert_array_equal(subspace.whitening, np.tril(subspace.whitening))
    x = np.vstack([basis.T[[0, width // 2, -1]], rng.normal(size=(5, width))]).astype(np.float64)
    expected = ((x.astype(np.longdouble) @ basis) ** 2 / values).sum(axis=1).astype(np.float64)
    np.testing.assert_allclose(subspace.leverage(x), expected, rtol=10 * EPS * max(condition, width))


@pytest.mark.parametrize("rank", [5, 70, 130, 200])
def test_blocks_of_a_triangle_of_any_rank(rank: int) -> None:
    """Rows AB with factors of full rank have the leverages of A, which need no decision about the rank."""
    rng = np.random.default_rng(9)
    factor = rng.normal(size=(400, rank))
    rows = factor @ rng.normal(size=(rank, 200))
    subspace = Subspace.fit(Correlation().update(rows))
    assert subspace.whitening.shape == (200, rank)
    projection = rows @ subspace.whitening @ subspace.whitening.T @ rows.T
    expected = factor @ np.linalg.solve(factor.T @ factor, factor.T)
    # Rounding of S is amplified by its condition within the span, ε λ_max / λ_min.
    tolerance = 100 * EPS * float(subspace.eigenvalues[0] / subspace.eigenvalues[rank - 1])
    np.testing.assert_allclose(projection, expected, atol=tolerance)
    np.testing.assert_allclose(subspace.leverage(rows[:9]), np.diag(expected)[:9], rtol=tolerance)
    assert np.isinf(subspace.leverage(rng.normal(size=(3, 200)))).all() == (rank < 200)


def problem(seed: int, *, width: int = 80, count: int = 400) -> tuple[Matrix, Matrix, Matrix, Matrix]:
    rng = np.random.default_rng(seed)
    scale = np.geomspace(1, 0.01, width)
    train, x = (np.maximum(rng.normal(0.5, 1, size=(n, width)), 0) * scale for n in (count, 30))
    return rng.normal(size=(7, width)), rng.normal(size=7), train, x


@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("scale", EMBEDDING_SCALES)
def test_a_score_is_the_regret_of_the_result_to_the_last_bit(scale: Any, dtype: Any, library: Any) -> None:
    weight, bias, train, x = problem(0)
    detector = Detector(weight, bias, embedding_scale=scale).fit(train)
    rows = library(x.astype(dtype))
    assert (detector.score(rows) == detector(rows).regret).all()


@pytest.mark.parametrize("factor", [1e-200, 1e200])
@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
def test_rows_of_extreme_length_have_the_regret_of_their_direction(library: Any, factor: float) -> None:
    weight, bias, train, x = problem(1)
    detector = Detector(weight, bias, embedding_scale="paper").fit(train)
    np.testing.assert_allclose(detector.score(library(x * factor)), detector.score(x), rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("logits", [None, torch.empty(50, 7, device="meta")])
def test_no_step_of_scoring_looks_at_a_value(dtype: torch.dtype, logits: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A meta tensor has no values: whatever looks at one raises, as it would wait for a GPU."""
    monkeypatch.setattr(torch, "is_autocast_enabled", lambda _: False)  # which does not know of it
    weight, bias, train, _ = problem(2)
    for rows in (train, train @ np.diag(np.arange(80) % 2)):  # of full rank, and not
        for input_layer in (False, True):
            detector = Detector(weight, bias, input_layer=input_layer).fit(rows, features=[train[:, :5]])
            single = Scorer(detector.model, single=True)
            x = torch.empty(50, 85, device="meta", dtype=dtype)
            for function, shape in (
                (single.regret, (50,)),
                (single.shares, (50, len(detector.block_names))),
                (single.predictive, (50, 7)),
            ):
                found = function(x, logits)
                assert (found.shape, found.dtype, found.device.type) == (shape, dtype, "meta")


@pytest.mark.parametrize("scale", EMBEDDING_SCALES)
def test_memory_of_a_chunk_is_bounded_for_many_classes(scale: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(5)
    weight, train = rng.normal(size=(300, 8)), rng.normal(size=(50, 8))
    detector = Detector(weight, embedding_scale=scale).fit(train)
    whole = detector.score(train)
    monkeypatch.setattr(row_tools, "_CHUNK_BYTES", 8 * 300 * 7)
    lengths: list[int] = []

    def note(model: Any, constants: Any, chunk: Chunk) -> Any:
        lengths.append(len(chunk.x))
        return regrets(model, constants, chunk)

    regrets = scorer._regrets
    monkeypatch.setattr(scorer, "_regrets", note)
    np.testing.assert_allclose(detector.score(train), whole, rtol=1e-12)
    assert sorted(lengths) == [1, *[7] * 7]


def test_leverage_without_any_direction_is_zero() -> None:
    assert leverage(np.ones((2, 3)), np.zeros((3, 0)), np.eye(3)[:, :0], (0.0, 0.0)).tolist() == [0, 0]


def test_few_rows_on_a_gpu_are_recorded_and_many_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    detector = Detector(rng.normal(size=(3, 6))).fit(rng.normal(size=(90, 6)))
    x = torch.tensor(rng.normal(size=(5, 6)))
    x[2, 4] = np.inf
    monkeypatch.setattr("pnml.core.batch.to_compute", lambda x: x)
    monkeypatch.setattr(scorer, "is_remote", lambda _: True)
    asked: list[int] = []
    of_few = detector.scorer._of_few

    def note(rows: Any, logits: Any) -> Any:
        asked.append(len(rows))
        return of_few(rows, logits)

    monkeypatch.setattr(detector.scorer, "_of_few", note)
    found = detector.score(x)
    assert found.isnan().tolist() == [number == 2 for number in range(5)]
    detector.score(torch.zeros(5000, 6, dtype=torch.float64))
    assert asked == [5]
    monkeypatch.undo()
    np.testing.assert_allclose(found, detector.score(x.numpy()), rtol=1e-9)
