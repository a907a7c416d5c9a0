"""Decompositions of matrices: by NumPy, and those of large ones on the GPU that the process works on, if there is one.

A GPU needs a tenth of the time or less. Which of both computed a decomposition changes it by rounding.
"""

from __future__ import annotations

import logging
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.threads import one_thread

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray

_LOG = logging.getLogger("pnml")
_SMALL = 1024  # rows


def eigh(matrix: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the eigenvalues of a symmetric matrix, ascending, and its eigenvectors, one a column.

    >>> values, vectors = eigh(np.diag([2.0, 1.0]))
    >>> values
    array([1., 2.])
    """
    pair = _on_gpu(matrix, lambda torch, x: torch.linalg.eigh(x))
    if pair is None:
        with _threads(matrix):
            pair = np.linalg.eigh(matrix)
    values, vectors = pair
    return values, vectors


def triangular_factor(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the upper triangular R of the QR decomposition of a matrix A, for which RᵀR = AᵀA.

    >>> abs(triangular_factor(np.array([[3.0], [4.0]])))
    array([[5.]])
    """
    pair = _on_gpu(matrix, lambda torch, x: torch.linalg.qr(x, mode="r"))
    if pair is not None:
        return pair[1]
    with _threads(matrix):
        return np.asarray(np.linalg.qr(matrix, mode="r"))


def _threads(matrix: NDArray[np.float64]) -> AbstractContextManager[object]:
    """Limit a small decomposition to one thread: more are no faster, and wait for each other on a busy machine."""
    return one_thread() if len(matrix) <= _SMALL else nullcontext()


def _on_gpu(matrix: NDArray[np.float64], function: Callable[[Any, Any], Any]) -> tuple[NDArray[np.float64], ...] | None:
    """Return what a function of PyTorch and a tensor gives; None where there is no GPU, or too little memory on it."""
    device = _gpu() if len(matrix) > _SMALL else None
    if device is None:
        return None
    torch = sys.modules["torch"]
    try:
        with torch.no_grad():
            tensors = function(torch, torch.from_numpy(np.ascontiguousarray(matrix)).to(device))
            return tuple(tensor.cpu().numpy() for tensor in tensors)
    except RuntimeError as error:  # that of too little memory is one
        _LOG.info("decomposing %d features on the CPU instead of the GPU: %s", len(matrix), error)
        return None


def _gpu() -> Any:
    """Return the GPU that this process has used already, by PyTorch; None if it has used none."""
    torch = sys.modules.get("torch")
    return torch.device("cuda") if torch is not None and torch.cuda.is_initialized() else None
