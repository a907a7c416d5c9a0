"""A batch of embeddings as it came and as it is computed with."""

from __future__ import annotations

from typing import Any

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import Array, as_numpy_view, like, namespace, precision, to_compute, to_numpy

_PROBED = 64  # columns that are compared to tell whether a batch was overwritten, and up to 16 rows


class Batch:
    """Embeddings of any array library.

    Attributes:
        x: the embeddings as they came, shape (n, M).
        rows: the same as they are computed with: by NumPy on the host, by their own library on a GPU.
        given: the model's own logits as they came, shape (n, C); None where they are not known.
        logits: the same as they are computed with.
        eps: the precision in which the embeddings came.
    """

    def __init__(self, x: Array, logits: Array | None = None) -> None:
        self.x = x
        self.rows = to_compute(x)
        self.given = logits
        self.logits = None if logits is None else _beside(logits, self.rows)
        self.eps = precision(x)
        self._content: Any = None

    def remember(self) -> None:
        """Take note of what the rows hold, for :meth:`unchanged_rows` to tell."""
        self._content = _content(self.rows)

    def unchanged_rows(self) -> Array:
        """Return the rows; raise ``RuntimeError`` if they were overwritten since :meth:`remember`."""
        if _content(self.rows) != self._content:
            raise RuntimeError(
                "the embeddings were overwritten since they were scored: read every field of the result that you need "
                "before you reuse their memory, or score a copy"
            )
        return self.rows

    def finish(self, values: Array) -> Array:
        """Return values computed from the rows in float64 for float64 embeddings, and in float32 for all others."""
        xp = namespace(values)
        dtype = xp.float64 if self.eps < 1e-12 else xp.float32
        if values.dtype == dtype:
            return values
        with np.errstate(over="ignore"):  # of logits that are too large for float32
            return xp.astype(values, dtype)

    def convert(self, values: Array) -> Array:
        """Return values computed from the rows in the library and on the device of the embeddings."""
        return values if self.rows is self.x else like(self.x, values)


def _beside(logits: Array, rows: Array) -> Array:
    """Return logits in the library and on the device of rows."""
    if type(rows) is np.ndarray:
        return as_numpy_view(logits)
    logits = to_compute(logits)
    if type(logits) is type(rows) and compat.device(logits) == compat.device(rows):
        return logits
    return like(rows, to_numpy(logits))


def _content(rows: Array) -> Any:
    """Return something cheap that changes when rows are overwritten: some entries, or PyTorch's version counter."""
    if isinstance(rows, np.ndarray):
        n, width = rows.shape
        return rows[:: n // 16 + 1, :: width // _PROBED + 1].tobytes()
    counts = hasattr(rows, "is_inference") and not rows.is_inference()  # a PyTorch tensor that counts its changes
    return rows._version if counts else None  # noqa: SLF001 - there is no public name for it
