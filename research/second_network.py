"""One network's stored embeddings, of either study, and what the candidates of the second round need of them.

Files of ``embeddings.py`` have sums over the whole training set beside the rows that were kept; those of
``independent/train.py`` have the rows alone. Test and OOD rows are handled as one array, cut apart when AUROCs are
computed.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from safetensors import safe_open

from pnml import Correlation, Detector
from pnml.bench.leaderboard import NEAR
from pnml.core import theorem
from pnml.core.sample import RowSample
from pnml.core.scaling import ENTROPY_LEFT
from pnml.core.subspace import Subspace, leave_one_out
from pnml.metrics import auroc

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Means = tuple[float | None, float, float]  # AUROC near (None without a near set), far, and the mean


class Network:
    """A network: its head, the geometry of its training set, and the rows to tell apart."""

    def __init__(self, path: Path) -> None:
        with safe_open(path, "np") as file:
            held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        self.name, self.whole = path.stem, "norms" in held
        self.kind = "image" if self.whole else "linear" if "linear" in path.stem else "hidden"
        self.weight, self.bias = held["weight"].astype(float), held["bias"].astype(float)
        self.labels: NDArray[np.int64] = held["train_labels"]
        sets = {"test": held["test"], **{n.removeprefix("ood/"): x for n, x in held.items() if n.startswith("ood/")}}
        ends = np.cumsum([len(x) for x in sets.values()])
        self.parts = {name: slice(end - len(x), end) for (name, x), end in zip(sets.items(), ends, strict=True)}
        near = NEAR.get(path.stem.rpartition("_")[2], ())
        self.near = [name for name in sets if name.startswith("near/") or name in near]
        self.far = [name for name in sets if name not in {"test", *self.near}]
        self.stored = np.concatenate(list(sets.values()))
        self.train, self.new = Rows(self, held["train"], seen=True), Rows(self, self.stored)
        self.sample = RowSample.of(held["train"])
        self._lengths: dict[float, float] = {}
        norms = held["norms"].astype(float) if self.whole else self.train.norm
        self.count, self.mean_norm = len(norms), float(norms.mean())
        self.sums = {
            kind: (held[f"correlation/{kind}"], held[f"sum/{kind}"])
            if self.whole
            else (rows.T @ rows, rows.sum(axis=0))
            for kind, rows in (("unit", self.train.direction), ("raw", self.train.x))
        }

    @cached_property
    def detector(self) -> Detector:
        """The package's own, fitted on the sums; its length is solved for on a sample of the rows that were kept."""
        total = self.count * self.mean_norm
        statistic = Correlation.restore(self.sums["unit"][0], self.count, total, unit_norm=True, sample=self.sample)
        return Detector(self.weight, self.bias).merge(statistic)

    @property
    def unit(self) -> Subspace:
        """Of embeddings scaled to norm 1."""
        return self.detector.subspace

    @cached_property
    def raw(self) -> Subspace:
        """Of embeddings as they are."""
        return subspace(self.sums["raw"][0], self.count)

    @cached_property
    def centred(self) -> Subspace:
        """Of embeddings of norm 1 less their mean."""
        matrix, total = self.sums["unit"]
        return subspace(matrix - np.outer(total, total) / self.count, self.count)

    @cached_property
    def kept(self) -> Subspace:
        """Of the training rows of the file alone, scaled to norm 1: those that the peers were fitted on."""
        return subspace(self.train.direction.T @ self.train.direction, len(self.labels)) if self.whole else self.unit

    @cached_property
    def class_means(self) -> Floats:
        """Mean direction of each class, (C, M), by the labels of the file."""
        members = np.eye(len(self.bias))[self.labels]
        found: Floats = members.T @ self.train.direction / members.sum(axis=0)[:, None]
        return found

    @cached_property
    def within(self) -> Subspace:
        """Of the directions in the file less the mean of their class."""
        rest = self.train.direction - self.class_means[self.labels]
        return subspace(rest.T @ rest, len(rest))

    def length(self, share: float = ENTROPY_LEFT) -> float:
        """The length at which p keeps a share of its entropy, as "auto" finds it for a quarter."""
        if share not in self._lengths:
            logits = self.sample.numpy() @ self.weight.T + self.bias / self.mean_norm
            self._lengths[share] = factor_for_entropy(logits, share)
        return self._lengths[share]

    @cached_property
    def factor(self) -> float:
        """What the network's own logits are multiplied by to keep a quarter of the entropy over the training rows."""
        return factor_for_entropy(self.train.logits, ENTROPY_LEFT)

    def aurocs(self, scores: Floats) -> dict[str, float]:
        """AUROC in percent of scores of ``new``, against every OOD set."""
        inside = scores[self.parts["test"]]
        return {ood: auroc(inside, scores[self.parts[ood]]) for ood in (*self.near, *self.far)}

    def means(self, aurocs: dict[str, float]) -> Means:
        """Near, far, and the mean as each study has it: of the six image sets, or of near and far."""
        far = [aurocs[ood] for ood in self.far]
        if not self.near:
            return None, float(np.mean(far)), float(np.mean(far))
        near = [aurocs[ood] for ood in self.near]
        both = [*near, *far] if self.whole else [np.mean(near), np.mean(far)]
        return float(np.mean(near)), float(np.mean(far)), float(np.mean(both))


class Rows:
    """Rows of one network; those that are in its sums get the leverage they would have if they were not."""

    def __init__(self, network: Network, x: Floats, *, seen: bool = False) -> None:
        self.network, self.seen, self.x = network, seen, x.astype(float)
        self.norm: Floats = np.linalg.norm(self.x, axis=1)
        self.direction: Floats = self.x / np.where(self.norm > 0, self.norm, 1)[:, None]
        self.projected: Floats = self.direction @ network.weight.T
        self.logits: Floats = self.x @ network.weight.T + network.bias
        self._log_p: dict[float, Floats] = {}

    @cached_property
    def h(self) -> Floats:
        """Leverage of the directions."""
        return self.leverage(self.network.unit, self.direction)

    def leverage(self, geometry: Subspace, rows: Floats) -> Floats:
        """Leverage in some geometry; a row without length is outside of all."""
        h = geometry.leverage(rows)
        h = leave_one_out(h, geometry.relative_error) if self.seen else h
        return np.where(self.norm > 0, h, np.inf)

    @cached_property
    def h_within(self) -> Floats:
        """Leverage about the mean of every class, (n, C), for as many rows as the whole training set has."""
        network, white = self.network, self.network.within.whitening
        rows, means = self.direction @ white, network.class_means @ white
        squares = (rows**2).sum(axis=1)[:, None] - 2 * rows @ means.T + (means**2).sum(axis=1)
        about = np.maximum(squares, 0) * len(network.labels) / network.count
        return np.where(np.isfinite(self.h)[:, None], about, np.inf)

    def log_p(self, length: float) -> Floats:
        """Log-probabilities of the directions at a length; the bias shrinks along."""
        if length not in self._log_p:
            logits = self.projected + self.network.bias / self.network.mean_norm
            self._log_p[length] = theorem.log_softmax(length * logits)
        return self._log_p[length]


def subspace(matrix: Floats, count: int) -> Subspace:
    return Subspace.fit(Correlation.restore(matrix, count, float(count)))


def entropy(log_p: Floats) -> float:
    return float(-(np.exp(log_p) * log_p).sum(axis=1).mean())


def factor_for_entropy(logits: Floats, share: float) -> float:
    """What logits (n, C) must be multiplied by for a mean entropy of a share of log C."""

    def above(factor: float) -> bool:
        return entropy(theorem.log_softmax(factor * logits)) > share * float(np.log(logits.shape[1]))

    return bisect(above, 1 / float(np.ptp(logits, axis=1).mean()))


def bisect(above: Callable[[float], bool], high: float) -> float:
    """The positive number at which a condition ceases to hold."""
    low = 0.0
    while above(high):
        low, high = high, 2 * high
    for _ in range(45):
        middle = (low + high) / 2
        low, high = (middle, high) if above(middle) else (low, middle)
    return low
