"""A batch of embeddings as it came and as it is computed with."""

from __future__ import annotations

from pnml.backend.arrays import Array, like, namespace, precision, to_compute


class Batch:
    """Embeddings of any array library.

    Attributes:
        x: the embeddings as they came, shape (n, M).
        rows: the same as they are computed with: by NumPy on the host, by their own library on a GPU.
        eps: the precision in which they came.
    """

    def __init__(self, x: Array) -> None:
        self.x, self.rows, self.eps = x, to_compute(x), precision(x)

    def finish(self, values: Array) -> Array:
        """Return values computed from the rows in float64 for float64 embeddings, and in float32 for all others."""
        xp = namespace(values)
        return xp.astype(values, xp.float64 if self.eps < 1e-12 else xp.float32, copy=False)

    def convert(self, values: Array) -> Array:
        """Return values computed from the rows in the library and on the device of the embeddings."""
        return values if self.rows is self.x else like(self.x, values)
