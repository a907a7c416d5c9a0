"""The contents of a report: sets of scored samples, tables, and facts about the run."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from pnml.backend.arrays import to_numpy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.core.calibration import Threshold

    Images: TypeAlias = NDArray[np.uint8] | Sequence[str | Path] | Mapping[int, NDArray[np.uint8]]

ROLES = ("in", "out", "unlabelled")
LENGTHS = "lengths"
"""The last of the layers, where it has this name, holds the lengths of the rows of all others: it has no depth."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """A table of texts and percentages.

    Attributes:
        title: the heading above the table.
        columns: the column headings. A pair (group, heading) places adjacent columns of the same group under a common
            heading; the largest number of a group is bold.
        rows: one entry per column: a text, a number, or None for a missing value.
        note: a text below the table.
        charted: the heading of the column that leads the chart above the table, a dot for each number of a row; ""
            without a chart.
        folded: whether the table is to be opened by the reader.
    """

    title: str
    columns: tuple[str | tuple[str, str], ...]
    rows: tuple[tuple[str | float | None, ...], ...]
    note: str = ""
    charted: str = ""
    folded: bool = False

    def __post_init__(self) -> None:
        for number, row in enumerate(self.rows):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"row {number} of table {self.title!r} has {len(row)} entries: expected {len(self.columns)}, "
                    "one per column"
                )


class Depth(NamedTuple):
    """A layer of the network, in the order of display: from input to output, the embedding, the lengths.

    Attributes:
        name: of the layer.
        column: of the leverages.
        kind: "early" in the first half of the network, "late" in the second, "lengths" for the lengths.
    """

    name: str
    column: int
    kind: Literal["early", "late", "lengths"]


@dataclass(frozen=True, kw_only=True, eq=False)
class ScoredSet:
    """A set of scored samples.

    Attributes:
        name: the displayed name, such as "CIFAR-10 test images".
        role: "in" for in-distribution, "out" for out-of-distribution, "unlabelled" for unknown.
        regret: the score in nats, larger = less trustworthy, shape (n,), n > 0.
        prediction: the predicted class numbers, shape (n,).
        probability: the model's own probability of its prediction, shape (n,).
        baseline: the score to compare with, such as 1 − max softmax, larger = less trustworthy, shape (n,).
        images: uint8 (n, H, W, 3), n paths, or a mapping from some row numbers to images. Only images of the gallery
            are embedded in the report, as thumbnails.
        labels: the true class numbers, shape (n,).
        ids: the name of every sample, such as its file name.
        p_value: conformal p-values, shape (n,); of the report's ``calibration`` when left out.
        is_ood: which samples are flagged, shape (n,); those above the report's threshold when left out.
        leverage: the shares of the embedding and of the other layers in the leverage, shape (n, 1 + layers).
        strangest: the strangest layer of each sample, shape (n,): 0 is the embedding, l the l-th other layer.

    >>> ScoredSet(name="photos", role="unlabelled", regret=[0.1, 0.7]).regret
    array([0.1, 0.7])
    """

    name: str
    role: Literal["in", "out", "unlabelled"]
    regret: NDArray[np.float64]
    prediction: NDArray[np.int64] | None = None
    probability: NDArray[np.float64] | None = None
    baseline: NDArray[np.float64] | None = None
    images: Images | None = None
    labels: NDArray[np.int64] | None = None
    ids: Sequence[str] | None = None
    p_value: NDArray[np.float64] | None = None
    is_ood: NDArray[np.bool_] | None = None
    leverage: NDArray[np.float64] | None = None
    strangest: NDArray[np.int64] | None = None

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"the role of {self.name!r} is {self.role!r}: expected one of {', '.join(ROLES)}")
        for column, dtype in _DTYPES.items():
            value = getattr(self, column)
            if value is not None:
                object.__setattr__(self, column, to_numpy(value, dtype))
        if self.regret.ndim != 1 or self.regret.size == 0:
            raise ValueError(f"the regret of {self.name!r} has shape {self.regret.shape}: expected (n,) with n > 0")
        for column in (*_DTYPES, "ids"):
            value = getattr(self, column)
            if value is not None and len(value) != len(self):
                raise ValueError(f"{self.name!r} has {len(self)} regrets but {len(value)} entries in {column!r}")
        self._check("regret", 0, np.inf, "a finite number of 0 nats or more")
        self._check("probability", -np.inf, np.inf, "a finite number")
        self._check("baseline", -np.inf, np.inf, "a finite number")
        self._check("p_value", 0, 1, "a number from 0 to 1")
        self._check_leverage()
        self._check_images()

    def __len__(self) -> int:
        return len(self.regret)

    def _check(self, column: str, low: float, high: float, expected: str) -> None:
        values = getattr(self, column)
        if values is None:
            return
        wrong = np.flatnonzero(~(np.isfinite(values) & (values >= low) & (values <= high)))
        if wrong.size:
            row, name = int(wrong[0]), column.replace("_", "-")
            raise ValueError(f"row {row} of {self.name!r} has a {name} of {values[row]}: expected {expected}")

    def _check_leverage(self) -> None:
        if self.leverage is None:
            return
        if self.strangest is None:
            raise ValueError(f"{self.name!r} has leverages but no strangest layers: pass both, or neither")
        if self.leverage.ndim != 2 or not (np.isfinite(self.leverage) & (self.leverage >= 0)).all():
            raise ValueError(
                f"the leverage of {self.name!r} has shape {self.leverage.shape}: expected finite numbers of 0 or more, "
                "of shape (n, 1 + layers)"
            )

    def _check_images(self) -> None:
        images = self.images
        if isinstance(images, np.ndarray):
            if images.dtype != np.uint8 or images.ndim != 4 or images.shape[-1] != 3 or len(images) != len(self):
                shape = f"{images.dtype} {images.shape}"
                raise ValueError(f"the images of {self.name!r} are {shape}: expected uint8 ({len(self)}, H, W, 3)")
        elif images is not None and not isinstance(images, Mapping) and len(images) != len(self):
            raise ValueError(f"{self.name!r} has {len(self)} regrets but {len(images)} paths of images")


_DTYPES: dict[str, Any] = {
    "regret": np.float64,
    "prediction": np.int64,
    "probability": np.float64,
    "baseline": np.float64,
    "labels": np.int64,
    "p_value": np.float64,
    "is_ood": np.bool_,
    "leverage": np.float64,
    "strangest": np.int64,
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Report:
    """The contents of a report.

    Attributes:
        title: of the page.
        facts: details of the run in display order, such as network, test accuracy, command, date and versions.
        sets: at most one in-distribution set and any number of others, with unique names.
        class_names: by class number; classes without a name are displayed by their number.
        spectrum: eigenvalues of the mean correlation of the training embeddings, descending, shape (M,).
        calibration: the threshold of the detector and the scores that it was set from, for what to expect of known
            samples, their histogram and p-values.
        threshold: the regret above which a sample is flagged, where there is no ``calibration``. Without either, the
            slider starts where it flags 5 % of the in-distribution set, or of all samples if there is none.
        tables: further tables, such as benchmark results.
        baseline_name: the displayed name of the sets' ``baseline``.
        pnml_name: the displayed name of the regret.
        layer_names: of the columns of ``leverage`` after the embedding: the layers from the input on, and "lengths" if
            it is the last.

    >>> photos = ScoredSet(name="photos", role="unlabelled", regret=[0.1, 0.7])
    >>> Report(title="My photos", facts={}, sets=(photos,)).other_sets[0].name
    'photos'
    """

    title: str
    facts: Mapping[str, str]
    sets: tuple[ScoredSet, ...]
    class_names: tuple[str, ...] = ()
    spectrum: NDArray[np.float64] | None = None
    calibration: Threshold | None = None
    threshold: float | None = None
    tables: tuple[Table, ...] = field(default=())
    baseline_name: str = "Baseline"
    pnml_name: str = "pNML"
    layer_names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.sets and not self.tables:
            raise ValueError("expected at least one scored set or table, got none")
        names = [one.name for one in self.sets]
        if duplicates := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"two sets are named {min(duplicates)!r}: expected unique names")
        if len([one for one in self.sets if one.role == "in"]) > 1:
            raise ValueError("two sets have the role 'in': expected at most one in-distribution set, concatenate them")
        if self.calibration is not None and self.threshold is not None:
            raise ValueError(
                f"the threshold is {self.threshold} and the calibration sets {self.calibration.value}: pass one of them"
            )
        if self.threshold is not None and not (math.isfinite(self.threshold) and self.threshold >= 0):
            raise ValueError(f"the threshold is {self.threshold}: expected a finite regret of 0 nats or more")
        if self.spectrum is not None:
            values = np.asarray(self.spectrum, dtype=np.float64)
            is_descending = values.ndim == 1 and np.isfinite(values).all() and (np.diff(values) <= 0).all()
            if not (is_descending and values[:1].sum() > 0):
                raise ValueError(
                    f"the spectrum has shape {values.shape} and starts with {values.flat[:1]}: expected finite "
                    "eigenvalues of shape (M,), descending, the first above 0"
                )
            object.__setattr__(self, "spectrum", values)
        for one in self.sets:
            self._check_layers(one, 1 + len(self.layer_names))

    def _check_layers(self, one: ScoredSet, count: int) -> None:
        if one.leverage is not None and one.leverage.shape[1] != count:
            raise ValueError(
                f"{one.name!r} has leverages of {one.leverage.shape[1]} layers, the embedding included: expected "
                f"{count}, one for it and one for each of layer_names"
            )
        if one.strangest is not None and not ((one.strangest >= 0) & (one.strangest < count)).all():
            raise ValueError(
                f"{one.name!r} has strangest layers from {one.strangest.min()} to {one.strangest.max()}: expected 0, "
                f"the embedding, to {count - 1}, the last of layer_names"
            )

    @property
    def ind_set(self) -> ScoredSet | None:
        """The in-distribution set, None if there is none."""
        return next((one for one in self.sets if one.role == "in"), None)

    @property
    def numbered_sets(self) -> list[tuple[int, ScoredSet]]:
        """The sets with their numbers in the order of display, the in-distribution set last."""
        return sorted(enumerate(self.sets), key=lambda entry: entry[1].role == "in")

    @property
    def other_sets(self) -> tuple[ScoredSet, ...]:
        """The sets that are not in-distribution."""
        return tuple(one for one in self.sets if one.role != "in")

    @property
    def ood_sets(self) -> tuple[ScoredSet, ...]:
        """The out-of-distribution sets."""
        return tuple(one for one in self.sets if one.role == "out")

    @property
    def depths(self) -> tuple[Depth, ...]:
        """All layers in the order of display."""
        has_lengths = self.layer_names[-1:] == (LENGTHS,)
        count = len(self.layer_names) - has_lengths
        names = (*self.layer_names[:count], "embedding")
        depths = [
            Depth(name, (place + 1) % (count + 1), "early" if 2 * place < count else "late")
            for place, name in enumerate(names)
        ]
        if has_lengths:
            depths.append(Depth(LENGTHS, count + 1, "lengths"))
        return tuple(depths)

    @property
    def has_depths(self) -> bool:
        """Whether the strangest layer of some samples is known."""
        return bool(self.layer_names) and any(one.strangest is not None for one in self.sets)

    @property
    def has_p_values(self) -> bool:
        """Whether p-values are known."""
        return self.calibration is not None or any(one.p_value is not None for one in self.sets)

    def class_name(self, number: int) -> str:
        """Return the name of a class, or "class" and its number."""
        return self.class_names[number] if 0 <= number < len(self.class_names) else f"class {number}"

    @property
    def has_metrics(self) -> bool:
        """Whether there is an in-distribution set and an out-of-distribution set to compare it with."""
        return self.ind_set is not None and bool(self.ood_sets)
