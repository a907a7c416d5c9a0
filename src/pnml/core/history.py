"""What a stream looked like over time, in a bounded number of windows that grow with it.

Windows hold the same number of samples each. When there are as many as may be, neighbours are joined, two by two. All
that is kept are sums, and the evidence at a window's end and at its peak, so batches of any size give the same windows.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.core.conformal import observed_interval

if TYPE_CHECKING:
    from numpy.typing import NDArray

MOST_WINDOWS = 128
SMALLEST_WINDOW = 10
"""Samples of a window, before any are joined."""
BINS = 20
"""Of the histograms of p-values."""

SUMS = ("samples", "flagged", "p_values", "class_samples", "class_flagged", "layer_flagged")


class Period(NamedTuple):
    """A stretch of a stream.

    Attributes:
        first, last: its samples, counted from 1.
        flagged: how many of them are flagged.
        p_values: how many p-values lie in each of ``BINS`` equal ranges.
        class_samples, class_flagged: by predicted class, where it is known, shape (C,).
        layer_flagged: flagged samples by their strangest layer, where it is known, shape (layers,).
    """

    first: int
    last: int
    flagged: int
    p_values: NDArray[np.int64]
    class_samples: NDArray[np.int64]
    class_flagged: NDArray[np.int64]
    layer_flagged: NDArray[np.int64]

    @property
    def samples(self) -> int:
        """How many samples there are."""
        return self.last - self.first + 1

    @property
    def share(self) -> float:
        """The share of samples that is flagged."""
        return self.flagged / self.samples

    def __str__(self) -> str:
        return f"samples {self.first:,} to {self.last:,}"

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return where the rate of flagged samples lies (Clopper and Pearson)."""
        return observed_interval(self.flagged, self.samples, confidence)


class History:
    """Windows of a stream, the first axis of every array; those not begun yet are 0.

    Args:
        n_classes: the number of classes whose samples are counted; more are added where they are seen.
        n_layers: the number of layers that may be the strangest, the embedding included.

    Attributes:
        window: how many samples a window holds.
        count: how many samples were added.
        samples, flagged: of each window, and how many of them are flagged, shape (W,).
        p_values: a histogram for each window, shape (W, BINS).
        class_samples, class_flagged: the same by predicted class, where it is known, shape (W, C).
        layer_flagged: flagged samples by the strangest layer, where it is known, shape (W, layers).
        evidence, peak: the log-evidence at the end of each window, and the largest within, shape (W,).

    >>> history = History(n_classes=2, n_layers=1)
    >>> history.add(np.full(25, 0.5), np.arange(25) > 20, np.linspace(0, 1, 25))
    >>> history.samples[:3].tolist(), history.flagged[:3].tolist(), history.peak[:3].tolist()
    ([10, 10, 5], [0, 0, 4], [0.375, 0.7916666666666666, 1.0])
    """

    def __init__(self, n_classes: int, n_layers: int) -> None:
        self.window, self.count = SMALLEST_WINDOW, 0
        widths = {"p_values": (BINS,), "layer_flagged": (n_layers,)}
        widths |= {"class_samples": (n_classes,), "class_flagged": (n_classes,)}
        for name in SUMS:
            setattr(self, name, np.zeros((MOST_WINDOWS, *widths.get(name, ())), np.int64))
        self.evidence, self.peak = np.zeros(MOST_WINDOWS), np.zeros(MOST_WINDOWS)

    samples: NDArray[np.int64]
    flagged: NDArray[np.int64]
    p_values: NDArray[np.int64]
    class_samples: NDArray[np.int64]
    class_flagged: NDArray[np.int64]
    layer_flagged: NDArray[np.int64]

    @property
    def length(self) -> int:
        """How many windows have begun."""
        return -(-self.count // self.window)

    def add(
        self,
        p_values: NDArray[np.float64],
        flagged: NDArray[np.bool_],
        log_evidence: NDArray[np.float64],
        prediction: NDArray[np.int64] | None = None,
        strangest: NDArray[np.int64] | None = None,
    ) -> None:
        """Add samples, each argument of shape (m,).

        Args:
            p_values: of the samples among all before them.
            flagged: whether the regret of each exceeds the threshold.
            log_evidence: after each sample.
            prediction: the predicted classes.
            strangest: the number of the layer in which each is strangest; only those of flagged samples count.
        """
        if prediction is not None and len(prediction):
            self._widen(int(prediction.max()) + 1)
        columns = (p_values, flagged, log_evidence, prediction, strangest)
        start = 0
        while start < len(p_values):
            if self.count == MOST_WINDOWS * self.window:
                self._join_neighbours()
            here = slice(start, start + MOST_WINDOWS * self.window - self.count)
            part = tuple(None if column is None else column[here] for column in columns)
            self._add_part(*part)
            start = here.stop

    def period(self, start: int, stop: int) -> Period:
        """Return what the windows from ``start`` to before ``stop`` hold together."""
        first, last = 1 + start * self.window, min(stop * self.window, self.count)
        flagged, *sums = (getattr(self, name)[start:stop].sum(axis=0) for name in SUMS if name != "samples")
        return Period(first, last, int(flagged), *sums)

    def split(self, sample: int | None) -> tuple[Period, ...]:
        """Return the periods before and from the window on that holds a sample; one if there is none before.

        Without samples there are none.
        """
        cut = 0 if sample is None else (sample - 1) // self.window
        edges = sorted({0, cut, self.length})
        return tuple(self.period(start, stop) for start, stop in pairwise(edges))

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays."""
        return {name: getattr(self, name) for name in (*SUMS, "evidence", "peak")}

    @classmethod
    def restore(cls, count: int, window: int, arrays: dict[str, NDArray[Any]]) -> History:
        """Return the history that had these ``arrays`` after ``count`` samples."""
        found = cls(0, 0)
        found.count, found.window = count, window
        for name in found.arrays():
            setattr(found, name, arrays[name])
        return found

    def _add_part(self, p_values: Any, flagged: Any, log_evidence: Any, prediction: Any, strangest: Any) -> None:
        """Add samples for which there are windows."""
        windows = (self.count + np.arange(len(p_values))) // self.window
        np.add.at(self.samples, windows, 1)
        np.add.at(self.flagged, windows, flagged)
        np.add.at(self.p_values, (windows, (p_values * BINS).astype(np.int64).clip(0, BINS - 1)), 1)
        if prediction is not None:
            np.add.at(self.class_samples, (windows, prediction), 1)
            np.add.at(self.class_flagged, (windows, prediction), flagged)
        if strangest is not None:
            np.add.at(self.layer_flagged, (windows, strangest), flagged)
        is_first = (self.count + np.arange(len(p_values))) % self.window == 0
        self.peak[windows[is_first]] = log_evidence[is_first]
        np.maximum.at(self.peak, windows, log_evidence)
        self.evidence[windows] = log_evidence  # the last of each stays
        self.count += len(p_values)

    def _join_neighbours(self) -> None:
        half = MOST_WINDOWS // 2
        for name in SUMS:
            held = getattr(self, name)
            held[:half] = held[0::2] + held[1::2]
            held[half:] = 0
        self.evidence[:half], self.peak[:half] = self.evidence[1::2], np.maximum(self.peak[0::2], self.peak[1::2])
        self.evidence[half:] = self.peak[half:] = 0
        self.window *= 2

    def _widen(self, n_classes: int) -> None:
        for name in ("class_samples", "class_flagged"):
            held = getattr(self, name)
            if n_classes > held.shape[1]:
                setattr(self, name, np.pad(held, ((0, 0), (0, n_classes - held.shape[1]))))
