"""The statistic of the training rows: Σxxᵀ, N, Σx of every class and a small sample; partial statistics add up.

A row may hold several layers of a network, one after the other: the embedding first, then features of earlier layers.
Every layer has a Σxxᵀ of its own, which is the block-diagonal approximation of the correlation of the whole row.
"""

from __future__ import annotations

import threading
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import Array, detached, namespace, to_compute, to_numpy
from pnml.backend.compensated import add, total
from pnml.backend.products import sum_by_class, sum_of_products
from pnml.backend.rows import (
    SMALLEST_NORM,
    check_finite,
    check_norms,
    check_shape,
    check_squares,
    divisors,
    have_safe_squares,
    row_norms,
    wide_dtype,
)
from pnml.backend.state import load_state, save_state
from pnml.core.classes import check_classes
from pnml.core.sample import RowSample

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from pnml.backend.compensated import Sum
    from pnml.backend.deferred import DeferredMatrix

_KIND, _VERSION = "pnml.correlation", 4


class Correlation:
    """The correlation Σxxᵀ of the training rows, in O(M²) memory however many rows there are.

    It is a sum, so partial statistics add up: over batches with :meth:`update`, over processes and machines with ``+``.
    Batches may come from any array library; PyTorch batches are summed on their own device. Several threads may update
    one statistic.

    Args:
        n_features: width M of the rows, or the widths of their layers; taken from the first batch when left out.
        unit_norm: scale every layer of a row to Euclidean norm 1 before it is added.
        n_classes: the number C of classes to sum rows of separately; none when 0.

    Attributes:
        widths: the widths of the layers of a row, None while unknown.
        count: the number N of rows summed.
        left_out: how many rows of norm 0 could not be scaled to norm 1 and were left out.
        sample: a :class:`~pnml.core.sample.RowSample` of the rows as they came, None while there are none.

    >>> rows = np.array([[3.0, 4.0], [0.0, 5.0], [8.0, 6.0]])
    >>> statistic = Correlation().update(rows)
    >>> statistic.matrix
    array([[73., 60.],
           [60., 77.]])
    >>> statistic == Correlation().update(rows[:1]) + Correlation().update(rows[1:])
    True
    """

    def __init__(
        self, n_features: int | Sequence[int] | None = None, *, unit_norm: bool = False, n_classes: int = 0
    ) -> None:
        widths = [n_features] if isinstance(n_features, (int, np.integer)) else n_features
        self.widths = None if widths is None else tuple(map(int, widths))
        self.unit_norm = unit_norm
        self.n_classes = n_classes
        self.count = 0
        self.left_out = 0
        self._sums: list[tuple[Array, Array]] = []  # one Σxxᵀ a layer
        self._norms: Sum = None
        self._class_sums: Sum = None
        self._class_counts = np.zeros(n_classes, dtype=np.int64)
        self.sample: RowSample | None = None
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self._copy()).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    @property
    def n_features(self) -> int | None:
        """The width M of a row, all its layers together; None while unknown."""
        return None if self.widths is None else sum(self.widths)

    def update(self, rows: Array, classes: Array | None = None) -> Correlation:
        """Add a batch of shape (n, M) and return self; a bad batch raises ``ValueError`` and changes nothing.

        With ``unit_norm``, rows whose first layer has norm 0 are left out and counted in ``left_out``.

        Args:
            rows: shape (n, M).
            classes: the class of every row, shape (n,); needed if, and only if, there are classes.
        """
        rows = to_compute(detached(check_shape(rows, self.n_features)))
        found = None if not self.n_classes else check_classes(classes, rows.shape[0], self.n_classes)
        given, widths = rows.shape[0], self.widths or (rows.shape[1],)
        if given:
            with np.errstate(all="ignore"):
                found_sums = [sum_of_products(layer, unit_norm=self.unit_norm) for layer in _split(rows, widths)]
            products, norms = zip(*found_sums, strict=True)
            if not all(bool(have_safe_squares(norm)) for norm in norms):  # the first time that a device is waited for
                rows, found = self._usable(rows, widths, found)
                if rows.shape[0]:
                    products, norms = self._sums_of_usable(_split(rows, widths))
        if not rows.shape[0]:
            with self._lock:
                check_shape(rows, self.n_features)
                self.widths, self.left_out = widths, self.left_out + given
            return self
        sample, class_sums = RowSample.of(rows, found, width=widths[0]), None
        if found is not None:
            class_sums = sum_by_class(rows, widths, norms if self.unit_norm else None, found, self.n_classes)
        with self._lock:  # nothing but additions, so that threads hardly wait for each other
            check_shape(rows, self.n_features)  # another thread may have learned the width meanwhile
            if found is not None:
                self._class_sums = add(self._class_sums, class_sums)
                self._class_counts = self._class_counts + np.bincount(found, minlength=self.n_classes)
            held: list[Sum] = [*self._sums] or [None] * len(widths)
            self._sums = [add(old, new) for old, new in zip(held, products, strict=True)]
            self._norms = add(self._norms, namespace(norms[0]).sum(norms[0]))
            self.sample = self._with(sample)
            self.count += rows.shape[0]
            self.widths, self.left_out = widths, self.left_out + given - rows.shape[0]
        return self

    def _sums_of_usable(self, layers: list[Array]) -> tuple[tuple[Array, ...], tuple[Array, ...]]:
        """Return Σxxᵀ and the norms of every layer of rows of any magnitude."""
        if not self.unit_norm:
            return tuple(sum_of_products(x, unit_norm=False)[0] for x in layers), tuple(map(row_norms, layers))
        norms = tuple(divisors(row_norms(x)) for x in layers)
        scaled = [x / norm[:, None] for x, norm in zip(layers, norms, strict=True)]
        return tuple(sum_of_products(x, unit_norm=False)[0] for x in scaled), norms

    def _usable(
        self, rows: Array, widths: tuple[int, ...], classes: np.ndarray[Any, Any] | None
    ) -> tuple[Array, np.ndarray[Any, Any] | None]:
        """Return the rows that can be added, in float64, and their classes; raise ``ValueError`` for a bad one."""
        check_finite(rows)
        rows = namespace(rows).astype(rows, wide_dtype(rows))
        if not self.unit_norm:
            check_squares(row_norms(rows))
            return rows, classes
        norms = [row_norms(layer) for layer in _split(rows, widths)]
        for norm in norms:
            check_norms(norm)
        has_direction = norms[0] > SMALLEST_NORM
        return rows[has_direction], classes if classes is None else classes[to_numpy(has_direction, bool)]

    @property
    def matrix(self) -> np.ndarray[Any, Any]:
        """Σxxᵀ of the first layer, the embedding, as a float64 NumPy array of shape (M, M)."""
        return self.layer_matrix(0)

    def layer_matrix(self, layer: int) -> np.ndarray[Any, Any]:
        """Return Σxxᵀ of one layer of the rows as a float64 NumPy array."""
        if not self._sums:
            raise ValueError("the Correlation is empty: call update(rows) with at least one row first")
        return total(self._sums[layer])

    @property
    def class_counts(self) -> np.ndarray[Any, Any]:
        """How many rows of each class were summed, shape (C,)."""
        return self._class_counts

    @property
    def class_sums(self) -> np.ndarray[Any, Any]:
        """Σx of the rows of each class, shape (C, M), all layers side by side."""
        if self._class_sums is None:
            return np.zeros((self.n_classes, self.n_features or 0))
        return total(self._class_sums)

    @property
    def mean_norm(self) -> float:
        """The mean Euclidean norm of the embeddings as they came, before any scaling."""
        return self.norm_sum / self.count if self.count else 0.0

    @property
    def norm_sum(self) -> float:
        """The sum of the embeddings' Euclidean norms as they came."""
        return 0.0 if self._norms is None else float(total(self._norms))

    def _with(self, sample: RowSample | None) -> RowSample | None:
        """Return the sample merged with that of further rows; None if either is of an older file, or there is none."""
        if self.count == 0:
            return sample
        if self.sample is None or sample is None or not (self.sample.by_direction and sample.by_direction):
            return None
        return self.sample + sample

    def __add__(self, other: Correlation) -> Correlation:
        """Merge two statistics of disjoint sets of rows into a new one."""
        if not isinstance(other, Correlation):
            return NotImplemented
        mine, others = self._copy(), other._copy()
        if mine.unit_norm != others.unit_norm:
            raise ValueError(
                "one Correlation scales its rows to unit norm and the other does not: they cannot be merged"
            )
        if mine.n_classes != others.n_classes:
            raise ValueError(
                f"cannot merge Correlations of {mine.n_classes} and {others.n_classes} classes: make both with the "
                "same n_classes, and update them with the class of every row"
            )
        if None not in {mine.widths, others.widths} and mine.widths != others.widths:
            one, another = (" + ".join(map(str, widths or ())) for widths in (mine.widths, others.widths))
            raise ValueError(f"cannot merge Correlations of width {one} and {another}")
        if not (mine.count and others.count):
            merged = mine if mine.count else others
            merged.widths = mine.widths if mine.widths is not None else others.widths
            merged.left_out = mine.left_out + others.left_out
            return merged
        return Correlation.restore(
            [mine.layer_matrix(i) + others.layer_matrix(i) for i in range(len(mine._sums))],
            mine.count + others.count,
            mine.norm_sum + others.norm_sum,
            unit_norm=mine.unit_norm,
            sample=mine._with(others.sample),
            left_out=mine.left_out + others.left_out,
            classes=(mine.class_counts + others.class_counts, mine.class_sums + others.class_sums),
        )

    def _copy(self) -> Correlation:
        """Return a statistic of its own, as it is between two updates; they share arrays, which no update changes."""
        copy = Correlation(self.widths, unit_norm=self.unit_norm, n_classes=self.n_classes)
        with self._lock:
            copy.widths, copy.count, copy.left_out = self.widths, self.count, self.left_out
            copy._sums, copy._norms, copy.sample = list(self._sums), self._norms, self.sample
            copy._class_sums, copy._class_counts = self._class_sums, self._class_counts
        return copy

    def __eq__(self, other: object) -> bool:
        """Return whether both hold the same numbers, bit for bit."""
        if not isinstance(other, Correlation):
            return NotImplemented
        mine, others = ((c.widths, c.count, c.left_out, c.unit_norm, c.n_classes, c.norm_sum) for c in (self, other))
        if mine != others:
            return False
        if self.count == 0:
            return True
        layers = all(np.array_equal(self.layer_matrix(i), other.layer_matrix(i)) for i in range(len(self._sums)))
        counts = np.array_equal(self.class_counts, other.class_counts)
        return layers and counts and np.array_equal(self.class_sums, other.class_sums) and self.sample == other.sample

    __hash__ = None  # type: ignore[assignment]  # mutable, like the arrays it holds

    def __repr__(self) -> str:
        return f"Correlation(n_features={self.n_features}, count={self.count}, unit_norm={self.unit_norm})"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistic to a safetensors file."""
        held = self._copy()
        info = {
            "count": held.count,
            "norm_sum": held.norm_sum,
            "unit_norm": held.unit_norm,
            "left_out": held.left_out,
            "widths": held.widths,
        }
        arrays = {f"sum.{i}": held.layer_matrix(i) for i in range(len(held.widths or (0,)))}
        if held.n_classes:
            arrays |= {"class_counts": held.class_counts, "class_sums": held.class_sums}
        sample = {} if held.sample is None else held.sample.arrays()
        save_state(path, _KIND, _VERSION, arrays | sample, info)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Correlation:
        """Read a statistic written by :meth:`save`."""
        arrays, info = load_state(path, _KIND, _VERSION, digest_since=3)
        widths = info.get("widths")
        matrices = [arrays["sum"]] if widths is None else [arrays[f"sum.{i}"] for i in range(len(widths))]
        return cls.restore(
            matrices,
            info["count"],
            info["norm_sum"],
            unit_norm=info["unit_norm"],
            sample=RowSample.from_arrays(arrays),
            left_out=info.get("left_out", 0),
            classes=(arrays["class_counts"], arrays["class_sums"]) if "class_sums" in arrays else None,
        )

    @classmethod
    def restore(
        cls,
        matrices: np.ndarray[Any, Any] | Sequence[np.ndarray[Any, Any] | DeferredMatrix],
        count: int,
        norm_sum: float,
        *,
        unit_norm: bool = False,
        sample: RowSample | None = None,
        left_out: int = 0,
        classes: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]] | None = None,
    ) -> Correlation:
        """Return a statistic made of sums computed elsewhere.

        Without a ``sample`` and ``classes`` it serves every ``embedding_scale`` but "auto".

        Args:
            matrices: Σxxᵀ (M, M), or one for each layer of the rows.
            count: the number N of rows.
            norm_sum: Σ‖x‖ of the embeddings before scaling.
            unit_norm: whether rows were scaled to norm 1.
            sample: of those rows.
            left_out: how many rows were left out.
            classes: how many rows each class has, (C,), and their Σx, (C, M).
        """
        matrices = [matrices] if isinstance(matrices, np.ndarray) else list(matrices)
        counts, class_sums = (np.zeros(0, dtype=np.int64), None) if classes is None else classes
        statistic = cls([len(matrix) for matrix in matrices], unit_norm=unit_norm, n_classes=len(counts))
        statistic.count, statistic._norms = count, (np.float64(norm_sum), None)
        statistic._sums = [(matrix, None) for matrix in matrices]
        statistic._class_counts = counts
        statistic._class_sums = (class_sums, None) if len(counts) else None
        statistic.sample, statistic.left_out = sample, left_out
        return statistic


def _split(rows: Array, widths: tuple[int, ...]) -> list[Array]:
    """Return the layers of rows (n, M), without copying."""
    if len(widths) == 1:
        return [rows]
    ends = list(accumulate(widths))
    return [rows[:, end - width : end] for end, width in zip(ends, widths, strict=True)]
