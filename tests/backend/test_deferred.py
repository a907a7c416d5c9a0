"""A matrix that is computed when it is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pnml import Correlation
from pnml.backend.deferred import DeferredMatrix


def test_a_statistic_of_deferred_matrices_is_that_of_the_matrices() -> None:
    rows = np.random.default_rng(0).normal(size=(20, 3))
    asked = []

    def matrix() -> np.ndarray[Any, Any]:
        asked.append(1)
        return rows.T @ rows

    deferred = Correlation.restore([DeferredMatrix(3, matrix)], 20, 1.0)
    assert deferred.widths == (3,)
    assert not asked
    given = Correlation.restore(rows.T @ rows, 20, 1.0)
    assert deferred == given
    assert deferred + given == given + given
    deferred.update(rows[:5])
    asked.clear()
    assert deferred == given.update(rows[:5])
    assert not asked  # it is a sum as any other now


def test_a_deferred_matrix_takes_the_dtype_that_is_asked_for_and_shares_no_memory() -> None:
    matrix = DeferredMatrix(2, lambda: np.eye(2))
    assert np.asarray(matrix, dtype=np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="no memory to share"):
        matrix.__array__(copy=False)
