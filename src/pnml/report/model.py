"""What a report is made of: sets of scored samples, tables, and facts about the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    Pictures: TypeAlias = NDArray[np.uint8] | Sequence[str | Path] | Mapping[int, NDArray[np.uint8]]

ROLES = ("in", "out", "unlabelled")


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredSet:
    """Scored samples of one kind.

    Attributes:
        name: how a reader knows it, as "CIFAR-10 test images".
        role: "in" for in-distribution, "out" for out-of-distribution, "unlabelled" where nobody knows.
        regret: the score in nats, larger = less trustworthy, shape (n,), n > 0.
        prediction: the predicted class numbers, shape (n,).
        probability: the model's own probability of its prediction, shape (n,).
        baseline: the score to compare with, 1 − max softmax by default, larger = less trustworthy, shape (n,).
        images: the pictures: uint8 (n, H, W, 3), or n paths, or those of some rows by their number. Only the gallery's
            are put into the report, made small.
        labels: the true class numbers, shape (n,).
        ids: a name for every sample, as its file's.

    >>> ScoredSet(name="photographs", role="unlabelled", regret=[0.1, 0.7]).regret
    array([0.1, 0.7])
    """

    name: str
    role: Literal["in", "out", "unlabelled"]
    regret: NDArray[np.float64]
    prediction: NDArray[np.int64] | None = None
    probability: NDArray[np.float64] | None = None
    baseline: NDArray[np.float64] | None = None
    images: Pictures | None = None
    labels: NDArray[np.int64] | None = None
    ids: Sequence[str] | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"the role of {self.name!r} is {self.role!r}: choose from {', '.join(ROLES)}")
        for part, kind in _COLUMNS.items():
            value = getattr(self, part)
            if value is not None:
                object.__setattr__(self, part, np.asarray(value, dtype=kind))
        if self.regret.ndim != 1 or self.regret.size == 0:
            raise ValueError(
                f"the regret of {self.name!r} has shape {self.regret.shape}: expected one number a sample, (n,), n > 0"
            )
        for part in ("regret", "probability", "baseline"):
            _check_finite(self.name, part, getattr(self, part))
        if self.regret.min() < 0:
            raise ValueError(f"{self.name!r} has a regret of {self.regret.min()}: a regret is 0 nats or more")
        for part in ("prediction", "probability", "baseline", "labels", "ids"):
            value = getattr(self, part)
            if value is not None and len(value) != len(self):
                raise ValueError(f"{self.name!r} has {len(self)} regrets but {len(value)} entries in {part!r}")
        _check_pictures(self)

    def __len__(self) -> int:
        return len(self.regret)


_COLUMNS: dict[str, Any] = {
    "regret": np.float64,
    "prediction": np.int64,
    "probability": np.float64,
    "baseline": np.float64,
    "labels": np.int64,
}


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of words and of numbers in percent.

    Attributes:
        title: stands above it.
        columns: the headings; a pair (group, heading) puts neighbours of the same group under one heading, and the
            largest number of a group is set in bold.
        rows: one entry per column: text, a number, or None where there is none.
        note: what a reader should know.
    """

    title: str
    columns: tuple[str | tuple[str, str], ...]
    rows: tuple[tuple[str | float | None, ...], ...]
    note: str = ""

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {number} of the table {self.title!r} has {len(row)} entries for {len(self.columns)} columns"
                )


@dataclass(frozen=True, kw_only=True, eq=False)
class Report:
    """Everything a report shows.

    Attributes:
        title: of the page.
        facts: what was run, in the order to show it: network, test accuracy, detector, command, date, versions.
        sets: at most one in-distribution set, and any number of others, each of its own name.
        class_names: by class number; classes without a name are shown by their number.
        spectrum: eigenvalues of the mean correlation of the training embeddings, descending, shape (M,).
        threshold: the regret above which a sample is flagged; by default that which keeps 95 % of the in-distribution
            set, or of all samples where there is none.
        tables: further tables, as of benchmark results.
        baseline_name: what the sets' ``baseline`` is called.
        pnml_name: what the regret is called beside it.

    >>> photographs = ScoredSet(name="photographs", role="unlabelled", regret=[0.1, 0.7])
    >>> Report(title="My photographs", facts={}, sets=(photographs,)).others[0].name
    'photographs'
    """

    title: str
    facts: Mapping[str, str]
    sets: tuple[ScoredSet, ...]
    class_names: tuple[str, ...] = ()
    spectrum: NDArray[np.float64] | None = None
    threshold: float | None = None
    tables: tuple[Table, ...] = field(default=())
    baseline_name: str = "Baseline"
    pnml_name: str = "pNML"

    def __post_init__(self) -> None:
        if not self.sets and not self.tables:
            raise ValueError("a report needs something to show: give at least one scored set or one table")
        names = [one.name for one in self.sets]
        if double := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two sets are named {min(double)!r}: give each its own name")
        if len([one for one in self.sets if one.role == "in"]) > 1:
            raise ValueError("two sets have the role 'in': join them, a report compares with one in-distribution set")
        if self.threshold is not None and not (math.isfinite(self.threshold) and self.threshold >= 0):
            raise ValueError(f"the threshold is {self.threshold}: expected a regret, 0 nats or more")
        if self.spectrum is not None:
            object.__setattr__(self, "spectrum", _checked_spectrum(self.spectrum))

    @property
    def inside(self) -> ScoredSet | None:
        """The in-distribution set."""
        return next((one for one in self.sets if one.role == "in"), None)

    @property
    def others(self) -> tuple[ScoredSet, ...]:
        """The sets that are not in-distribution, in their order."""
        return tuple(one for one in self.sets if one.role != "in")

    @property
    def outside(self) -> tuple[ScoredSet, ...]:
        """The out-of-distribution sets."""
        return tuple(one for one in self.sets if one.role == "out")


def _checked_spectrum(values: NDArray[np.float64]) -> NDArray[np.float64]:
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or not (np.isfinite(values).all() and (np.diff(values) <= 0).all() and values[:1].sum() > 0):
        raise ValueError(
            f"the spectrum is {values.dtype} {values.shape}, from {values.flat[:1]} on: "
            "expected finite eigenvalues, shape (M,), descending from one above 0"
        )
    return values


def _check_finite(name: str, part: str, values: NDArray[np.float64] | None) -> None:
    if values is not None and not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values))[0])
        raise ValueError(f"row {row} of {name!r} has a {part} of {values[row]}: a report needs finite numbers")


def _check_pictures(scored: ScoredSet) -> None:
    images = scored.images
    if isinstance(images, np.ndarray):
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3 or len(images) != len(scored):
            raise ValueError(
                f"the images of {scored.name!r} are {images.dtype} {images.shape}: "
                f"uint8 ({len(scored)}, H, W, 3) is expected"
            )
    elif images is not None and not isinstance(images, Mapping) and len(images) != len(scored):
        raise ValueError(f"{scored.name!r} has {len(scored)} regrets but {len(images)} paths of images")
