"""One network's embeddings, and what the candidates need of them."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from safetensors import safe_open

from pnml.core import theorem
from pnml.core.correlation import Correlation
from pnml.core.subspace import Subspace, leave_one_out, xtg

if TYPE_CHECKING:
    from pathlib import Path

    Floats = np.ndarray


class Study:
    """A network: its training statistics, of the whole training set, and the rows that ``embeddings.py`` kept."""

    def __init__(self, path: Path) -> None:
        with safe_open(path, "np") as file:
            held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        self.held, self.name, self.ind = held, path.stem, path.stem.split("_")[1]
        self.weight, self.bias = held["weight"].astype(float), held["bias"].astype(float)
        self.count, self.mean_norm = len(held["norms"]), float(held["norms"].astype(float).mean())
        self.train = Rows(self, held["train"], seen=True)
        self.test = Rows(self, held["test"])
        self.oods = {name.removeprefix("ood/"): Rows(self, x) for name, x in held.items() if name.startswith("ood/")}

    @property
    def labels(self) -> Floats:
        """Of the training rows."""
        return self.held["train_labels"]

    @cached_property
    def unit(self) -> Subspace:
        """Of embeddings scaled to norm 1."""
        return self._subspace(self.held["correlation/unit"])

    @cached_property
    def raw(self) -> Subspace:
        """Of embeddings as they are."""
        return self._subspace(self.held["correlation/raw"])

    @cached_property
    def unit_bias(self) -> Subspace:
        """Of embeddings scaled to norm 1 with a coordinate of 1 for the bias."""
        return self._subspace(self._with_bias("unit"))

    @cached_property
    def raw_bias(self) -> Subspace:
        """Of embeddings as they are with a coordinate of 1 for the bias."""
        return self._subspace(self._with_bias("raw"))

    def _with_bias(self, kind: str) -> Floats:
        total = self.held[f"sum/{kind}"]
        return np.block(
            [[self.held[f"correlation/{kind}"], total[:, None]], [total[None], np.full((1, 1), self.count)]]
        )

    def _subspace(self, matrix: Floats) -> Subspace:
        return Subspace.fit(Correlation.restore(matrix, self.count, float(self.count)))


class Rows:
    """Rows of one network; those of the training set are scored as if they had not been seen."""

    def __init__(self, study: Study, x: Floats, *, seen: bool = False) -> None:
        self.study, self.seen = study, seen
        self.x = x.astype(float)
        self.norm = np.linalg.norm(self.x, axis=1)
        self.direction = self.x / self.norm[:, None]
        self.projected = self.direction @ study.weight.T
        self.logits = self.projected * self.norm[:, None] + study.bias

    @cached_property
    def h(self) -> Floats:
        """Leverage of the directions."""
        return self._leverage(self.study.unit, self.direction)

    @cached_property
    def h_raw(self) -> Floats:
        """Leverage of the rows as they are."""
        return self._leverage(self.study.raw, self.x)

    @cached_property
    def h_unit_bias(self) -> Floats:
        """Leverage of the directions with a bias coordinate."""
        return self._leverage(self.study.unit_bias, np.pad(self.direction, ((0, 0), (0, 1)), constant_values=1.0))

    @cached_property
    def h_raw_bias(self) -> Floats:
        """Leverage of the rows as they are with a bias coordinate."""
        return self._leverage(self.study.raw_bias, np.pad(self.x, ((0, 0), (0, 1)), constant_values=1.0))

    def _leverage(self, subspace: Subspace, rows: Floats) -> Floats:
        h = subspace.leverage(rows)
        return leave_one_out(h, subspace.relative_error) if self.seen else h

    def log_p(self, length: float | Floats) -> Floats:
        """Log-probabilities of the directions at a length, one for all or one for each."""
        lengths = np.broadcast_to(length, self.norm.shape)[:, None]
        return theorem.log_softmax(self.projected * lengths + self.study.bias)

    def regret(self, length: float | Floats, h: Floats | None = None) -> Floats:
        """The regret at a length; leverage does not change when all embeddings are scaled alike."""
        return theorem.regret(self.log_p(length), xtg(self.h if h is None else h), log=True)
