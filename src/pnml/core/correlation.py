"""The statistic of the training rows: Σxxᵀ, Σx, N and a small sample; partial statistics add up."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, NamedTuple

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import Array, detached, is_remote, like, namespace, to_compute, to_numpy
from pnml.backend.products import allows_single, product, sum_by_class, sum_of_rows
from pnml.backend.rows import (
    SMALLEST_NORM,
    check_finite,
    check_norms,
    check_shape,
    check_squares,
    have_safe_squares,
    row_norms,
    wide_dtype,
)
from pnml.backend.state import load_state, save_state
from pnml.backend.threads import spread
from pnml.core.classes import check_classes
from pnml.core.layout import Layout
from pnml.core.sample import RowSample

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

_KIND = "pnml.correlation"
_VERSION = 5
_CHUNK = 2048  # rows: enough for a product to be worth the additions after it


class _Sums(NamedTuple):
    """The sums of some rows: Σxxᵀ of every block; with classes, Σx of every block but the first, and of it by class."""

    products: list[Array]
    sums: list[Array]
    of_classes: Array | None


def _sums_of(
    blocks: list[Array], classes: np.ndarray[Any, Any] | None, n_classes: int, single: list[bool] | None
) -> _Sums:
    products = [product(block, single=single is not None and single[number]) for number, block in enumerate(blocks)]
    if classes is None:
        return _Sums(products, [], None)
    return _Sums(products, [sum_of_rows(block) for block in blocks[1:]], sum_by_class(blocks[0], classes, n_classes))


class Correlation:
    """The correlation Σxxᵀ of the training rows, in O(M²) memory however many rows there are.

    It is a sum, so partial statistics add up: over batches with :meth:`update`, over processes and machines with ``+``.
    Batches may come from any array library; PyTorch batches are summed on their own device. Several threads may update
    one statistic.

    With classes, it is the statistic of ``embedding_scale="auto"``: rows may hold features of earlier layers after the
    embedding, and every block of a row (:mod:`pnml.core.layout`) has a Σxxᵀ of its own.

    Args:
        n_features: width M of the rows, or the widths of their layers; taken from the first batch when left out.
        unit_norm: scale rows to Euclidean norm 1 before they are added; with classes, they are.
        n_classes: the number C of classes to sum rows of separately; none when 0.
        input_layer: whether the last of the layers is the input of the model, which is watched as it comes, too.

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
        self,
        n_features: int | Sequence[int] | None = None,
        *,
        unit_norm: bool = False,
        n_classes: int = 0,
        input_layer: bool = False,
    ) -> None:
        widths = [n_features] if isinstance(n_features, (int, np.integer)) else n_features
        self.widths = None if widths is None else tuple(map(int, widths))
        self.unit_norm = unit_norm or n_classes > 0
        self.n_classes = n_classes
        self.input_layer = input_layer
        self.count = 0
        self.left_out = 0
        self.sample: RowSample | None = None
        self._products: list[Array] = []  # Σxxᵀ of every block
        self._sums: list[Array] = []  # Σx of every block but the first, of which the classes have it
        self._norms: Array | None = None  # Σ‖x‖ of the embeddings
        self._class_sums: Array | None = None
        self._class_counts = np.zeros(n_classes, dtype=np.int64)
        self._single: list[bool] | None = None  # of every block, whether its products may be computed in float32
        self._lock = threading.RLock()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self._copy()).items() if name != "_lock"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=threading.RLock())

    @property
    def n_features(self) -> int | None:
        """The width M of a row, all its layers together; None while unknown."""
        return None if self.widths is None else sum(self.widths)

    @property
    def layout(self) -> Layout:
        """How a row is cut into blocks."""
        if self.widths is None:
            raise ValueError("the Correlation is empty: call update(rows) with at least one row first")
        return Layout(self.widths, self.unit_norm, whole=self.n_classes == 0, input_layer=self.input_layer)

    def update(self, rows: Array, classes: Array | None = None) -> Correlation:
        """Add a batch of shape (n, M) and return self; a bad batch raises ``ValueError`` and changes nothing.

        With ``unit_norm``, rows whose embedding has norm 0 are left out and counted in ``left_out``.

        Args:
            rows: shape (n, M).
            classes: the class of every row, shape (n,); needed if there are classes, and not looked at otherwise.
        """
        rows = to_compute(detached(check_shape(rows, self.n_features)))
        classes = check_classes(classes, rows.shape[0], self.n_classes) if self.n_classes else None
        given = rows.shape[0]
        batch = Correlation(
            self.widths or rows.shape[1],
            unit_norm=self.unit_norm,
            n_classes=self.n_classes,
            input_layer=self.input_layer,
        )
        batch._single = self._single
        if given:
            batch._sum(rows, classes)
        with self._lock:  # nothing but additions, so that threads hardly wait for each other
            check_shape(rows, self.n_features)  # another thread may have learned the width meanwhile
            self._add(batch)
            self.left_out += given - batch.count
        return self

    def _sum(self, rows: Array, classes: np.ndarray[Any, Any] | None) -> None:
        """Sum rows, into an empty statistic."""
        layout = self.layout
        with np.errstate(all="ignore"):
            norms, divisors = layout.norms(rows)
            safe = bool(have_safe_squares(norms))  # the only time that a device is waited for
        if not safe:
            rows, classes = self._usable(rows, norms, classes)
            if not rows.shape[0]:
                return
            norms, divisors = layout.norms(rows)

        def blocks(part: slice) -> list[Array]:
            chunk = rows[part]
            if layout.whole:  # to the last digit, for the paper's numbers
                chunk = namespace(chunk).astype(chunk, wide_dtype(chunk), copy=False)
            return layout.blocks(chunk, norms[part], divisors[part])

        if self._single is None and not layout.whole and not is_remote(rows) and rows.shape[0] >= _CHUNK:
            self._single = [allows_single(block) for block in blocks(slice(0, _CHUNK))]

        def work(part: slice) -> _Sums:
            with np.errstate(all="ignore"):  # of the thread that computes
                return _sums_of(blocks(part), None if classes is None else classes[part], self.n_classes, self._single)

        parts = [slice(start, start + _CHUNK) for start in range(0, rows.shape[0], _CHUNK)]
        for sums in spread(work, parts) if isinstance(rows, np.ndarray) else map(work, parts):
            self._products = _add_all(self._products, sums.products)
            self._sums = _add_all(self._sums, sums.sums)
            if sums.of_classes is not None:
                self._class_sums = _add(self._class_sums, sums.of_classes)
        self.count = rows.shape[0]
        self._norms = namespace(norms).sum(norms[:, 0], dtype=wide_dtype(norms))
        if classes is not None:
            self._class_counts = np.bincount(classes, minlength=self.n_classes)
        self.sample = RowSample.of(rows, classes, width=layout.widths[0])

    def _usable(
        self, rows: Array, norms: Array, classes: np.ndarray[Any, Any] | None
    ) -> tuple[Array, np.ndarray[Any, Any] | None]:
        """Return the rows that can be added, in float64, and their classes; raise ``ValueError`` for a bad one."""
        check_finite(rows)
        if self.input_layer:
            start, stop = self.layout.spans[-1]
            check_squares(row_norms(rows[:, start:stop]))
        if bool(have_safe_squares(norms)):
            return rows, classes
        rows = namespace(rows).astype(rows, wide_dtype(rows))
        with np.errstate(all="ignore"):
            norms, _ = self.layout.norms(rows)
        if not self.unit_norm:
            check_squares(norms[:, 0])
            return rows, classes
        for number in range(norms.shape[1]):
            check_norms(norms[:, number])
        has_direction = norms[:, 0] > SMALLEST_NORM
        if classes is not None:
            classes = classes[to_numpy(has_direction, bool)]
        return rows[has_direction], classes

    def _add(self, other: Correlation) -> None:
        """Add a statistic of other rows to this one."""
        if self.widths is None:
            self.widths = other.widths
            self.input_layer = other.input_layer
        self.left_out += other.left_out
        if not other.count:
            return
        if self.count == 0:
            self.sample = other.sample
        elif self.sample is not None and other.sample is not None:
            self.sample = self.sample + other.sample
        self._products = _add_all(self._products, other._products)
        self._sums = _add_all(self._sums, other._sums)
        self._norms = _add(self._norms, other._norms)
        if other._class_sums is not None:
            self._class_sums = _add(self._class_sums, other._class_sums)
        self._class_counts = self._class_counts + other._class_counts
        self._single = other._single
        self.count += other.count

    @property
    def matrix(self) -> np.ndarray[Any, Any]:
        """Σxxᵀ of the first block, the embedding, as a float64 NumPy array of shape (M, M)."""
        return self.block_matrix(0)

    def block_matrix(self, number: int) -> np.ndarray[Any, Any]:
        """Return Σxxᵀ of one block of the rows as a float64 NumPy array."""
        if not self._products:
            raise ValueError("the Correlation is empty: call update(rows) with at least one row first")
        return to_numpy(self._products[number])

    def block_sum(self, number: int) -> np.ndarray[Any, Any]:
        """Return Σx of one block of the rows as a float64 NumPy array."""
        if number == 0:
            return np.asarray(self.class_sums.sum(axis=0))
        return to_numpy(self._sums[number - 1])

    @property
    def class_counts(self) -> np.ndarray[Any, Any]:
        """How many rows of each class were summed, shape (C,)."""
        return self._class_counts

    @property
    def class_sums(self) -> np.ndarray[Any, Any]:
        """Σx of the embeddings of each class, shape (C, width of the first block)."""
        if self._class_sums is None:
            return np.zeros((self.n_classes, 0 if self.widths is None else self.layout.block_widths[0]))
        return to_numpy(self._class_sums)

    @property
    def mean_norm(self) -> float:
        """The mean Euclidean norm of the embeddings as they came, before any scaling."""
        return self.norm_sum / self.count if self.count else 0.0

    @property
    def norm_sum(self) -> float:
        """The sum of the embeddings' Euclidean norms as they came."""
        return 0.0 if self._norms is None else float(self._norms)

    @property
    def embeddings_alone(self) -> Correlation:
        """The statistic of the embeddings, without features of layers."""
        arrays, info = self.arrays()
        if self.widths is None or len(self.widths) == 1:
            return self._copy()
        info |= {"widths": self.widths[:1], "input_layer": False}
        if self.count:
            arrays["sample"] = arrays["sample"][:, : self.widths[0]]
        return Correlation.from_arrays(arrays, info)

    def __add__(self, other: Correlation) -> Correlation:
        """Merge two statistics of disjoint sets of rows into a new one."""
        if not isinstance(other, Correlation):
            return NotImplemented
        merged = self._copy()
        other = other._copy()
        if merged.unit_norm != other.unit_norm:
            raise ValueError(
                "one Correlation scales its rows to unit norm and the other does not: they cannot be merged"
            )
        if merged.n_classes != other.n_classes:
            raise ValueError(
                f"cannot merge Correlations of {merged.n_classes} and {other.n_classes} classes: make both with the "
                "same n_classes, and update them with the class of every row"
            )
        if merged.input_layer != other.input_layer and merged.count and other.count:
            raise ValueError("the last layer of one Correlation is an input (input_layer=True) and the other's is not")
        if None not in {merged.widths, other.widths} and merged.widths != other.widths:
            one, another = (" + ".join(map(str, widths or ())) for widths in (merged.widths, other.widths))
            raise ValueError(f"cannot merge Correlations of width {one} and {another}")
        merged._add(other)
        return merged

    def _copy(self) -> Correlation:
        """Return a statistic of its own, as it is between two updates; they share arrays, which no update changes."""
        copy = Correlation(
            self.widths, unit_norm=self.unit_norm, n_classes=self.n_classes, input_layer=self.input_layer
        )
        with self._lock:
            held = {name: list(value) if type(value) is list else value for name, value in vars(self).items()}
        copy.__dict__.update(held, _lock=copy._lock)
        return copy

    def __eq__(self, other: object) -> bool:
        """Return whether both hold the same numbers, bit for bit."""
        if not isinstance(other, Correlation):
            return NotImplemented
        mine, my_info = self.arrays()
        others, other_info = other.arrays()
        if my_info != other_info or mine.keys() != others.keys():
            return False
        return all(np.array_equal(mine[name], others[name]) for name in mine)

    __hash__ = None  # type: ignore[assignment]  # mutable, like the arrays it holds

    def __repr__(self) -> str:
        return f"Correlation(n_features={self.n_features}, count={self.count}, unit_norm={self.unit_norm})"

    def arrays(self) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, Any]]:
        """Return all that it holds, as arrays and numbers from which :meth:`from_arrays` makes the same statistic."""
        held = self._copy()
        info = {
            "widths": held.widths,
            "unit_norm": held.unit_norm,
            "n_classes": held.n_classes,
            "input_layer": held.input_layer,
            "count": held.count,
            "left_out": held.left_out,
            "norm_sum": held.norm_sum,
        }
        arrays = {}
        for number in range(len(held._products)):  # noqa: SLF001 - its own copy
            arrays[f"product.{number}"] = held.block_matrix(number)
            if number:
                arrays[f"sum.{number}"] = held.block_sum(number)
        if held.n_classes and held.count:
            arrays["class_counts"] = held.class_counts
            arrays["class_sums"] = held.class_sums
        if held.sample is not None:
            arrays |= held.sample.arrays()
        return arrays, info

    @classmethod
    def from_arrays(cls, arrays: dict[str, np.ndarray[Any, Any]], info: dict[str, Any]) -> Correlation:
        """Return the statistic that :meth:`arrays` was asked of."""
        statistic = cls(
            info["widths"],
            unit_norm=info["unit_norm"],
            n_classes=info["n_classes"],
            input_layer=info["input_layer"],
        )
        statistic.count = info["count"]
        statistic.left_out = info["left_out"]
        if not statistic.count:
            return statistic
        blocks = range(len(statistic.layout.block_widths))
        statistic._norms = np.float64(info["norm_sum"])
        statistic._products = [arrays[f"product.{number}"] for number in blocks]
        statistic._sums = [arrays[f"sum.{number}"] for number in blocks[1:]]
        if statistic.n_classes:
            statistic._class_counts = arrays["class_counts"]
            statistic._class_sums = arrays["class_sums"]
        statistic.sample = RowSample.from_arrays(arrays)
        return statistic

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistic to a safetensors file."""
        save_state(path, _KIND, _VERSION, *self.arrays())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Correlation:
        """Read a statistic written by :meth:`save`."""
        return cls.from_arrays(*load_state(path, _KIND, _VERSION))


def _add_all(sums: list[Array], parts: list[Array]) -> list[Array]:
    return [_add(one, part) for one, part in zip(sums or [None] * len(parts), parts, strict=True)]


def _add(sum_: Array | None, part: Array) -> Array:
    """Return a sum, None before the first part, and a part; in the library and on the device of the part."""
    if sum_ is None:
        return part
    if type(sum_) is not type(part) or compat.device(sum_) != compat.device(part):
        sum_ = like(part, to_numpy(sum_))
    return sum_ + part
