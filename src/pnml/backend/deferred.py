"""A matrix that is computed when it is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray


class DeferredMatrix:
    """A matrix that is computed anew, by ``compute()``, whenever NumPy makes an array of it.

    Args:
        width: the number M of its rows and columns.
        compute: returns the matrix (M, M) in float64.

    >>> matrix = DeferredMatrix(2, lambda: np.eye(2))
    >>> len(matrix), float(np.asarray(matrix).trace())
    (2, 2.0)
    """

    def __init__(self, width: int, compute: Callable[[], NDArray[np.float64]]) -> None:
        self._width, self._compute = width, compute

    def __len__(self) -> int:
        return self._width

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: FBT001 - of NumPy
        if copy is False:
            raise ValueError("a DeferredMatrix has no memory to share: take np.asarray(matrix)")
        return self._compute().astype(np.float64 if dtype is None else dtype, copy=False)
