"""The learner of section 3, whole: a softmax layer fitted by pseudo-inverse, and its genie by explicit refitting.

A one-hot label has no finite inverse softmax (its logarithm is minus infinity), so labels are smoothed first: the
true class gets ``1 − smoothing``, the others share ``smoothing``, and the logarithms are what the layer regresses.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from pnml.backend.arrays import to_numpy
from pnml.backend.rows import check_rows
from pnml.core import theorem
from pnml.core.correlation import Correlation
from pnml.core.subspace import Subspace

Matrix = np.ndarray[Any, Any]


class SingleLayer:
    """A single-layer softmax network with the exact pNML of equations 8 to 17.

    Everything is small and in float64: it is the oracle the fast code is held to, and the model of the Iris figure.

    Args:
        smoothing: probability mass taken from the true class and shared by the others, in (0, 1).

    Attributes:
        theta: the weights θ = X⁺ f⁻¹(Y), shape (M, C).

    >>> layer = SingleLayer().fit([[1.0, 0.0], [0.0, 1.0], [1.0, 0.2]], [0, 1, 0])
    >>> layer.predict_proba([[1.0, 0.0]]).round(2)
    array([[0.99, 0.01]])
    >>> bool(np.isclose(layer.regret([[3.0, 3.0]]), np.log(layer.refit_genie([3.0, 3.0]).sum()))[0])
    True
    """

    def __init__(self, smoothing: float = 0.01) -> None:
        if not 0 < smoothing < 1:
            raise ValueError(f"smoothing must lie between 0 and 1, got {smoothing}: at 0 the targets are infinite")
        self.smoothing = smoothing

    def fit(self, rows: Any, labels: Any) -> SingleLayer:
        """Fit θ to rows (N, M) and integer labels (N,) in 0…C−1."""
        self._rows = check_rows(to_numpy(rows), None)
        if len(self._rows) == 0:
            raise ValueError("expected at least one row to fit, got none")
        labels = to_numpy(labels, None)
        if labels.shape != (len(self._rows),) or not np.issubdtype(labels.dtype, np.integer) or (labels < 0).any():
            raise ValueError(
                f"expected {len(self._rows)} integer labels from 0, got shape {labels.shape} of {labels.dtype}"
            )
        self.n_classes = int(labels.max()) + 1
        self._targets = np.stack([self.inverse_softmax(label) for label in labels])
        self.theta: Matrix = np.linalg.pinv(self._rows) @ self._targets
        self._follow()
        return self

    def inverse_softmax(self, label: int) -> Matrix:
        """Return the logits, shape (C,), whose softmax is the smoothed one-hot vector of ``label``."""
        if not 0 <= label < self.n_classes:
            raise ValueError(f"label {label} is none of the classes 0 to {self.n_classes - 1}")
        smoothed = np.full(self.n_classes, self.smoothing / max(1, self.n_classes - 1))
        smoothed[label] = 1 - self.smoothing
        return np.asarray(np.log(smoothed))

    def update(self, x: Any, label: int) -> SingleLayer:
        """Add one labelled row by the recursive rule of equation 9, without refitting."""
        x = check_rows(to_numpy(x)[None], self._rows.shape[1])[0]
        target = self.inverse_softmax(label)
        self.theta = self.theta + np.outer(self.subspace.gain(x), target - x @ self.theta)
        self._rows, self._targets = np.vstack([self._rows, x]), np.vstack([self._targets, target])
        self._follow()
        return self

    def _follow(self) -> None:
        self.subspace = Subspace.fit(Correlation().update(self._rows))

    def predict_log_proba(self, x: Any) -> Matrix:
        """Return the ERM log-probabilities of rows (n, M), shape (n, C)."""
        logits = check_rows(to_numpy(x), self.theta.shape[0]) @ self.theta
        return np.asarray(logits - np.logaddexp.reduce(logits, axis=1, keepdims=True))

    def predict_proba(self, x: Any) -> Matrix:
        """Return the ERM probabilities of rows (n, M), shape (n, C)."""
        return np.exp(self.predict_log_proba(x))

    def regret(self, x: Any) -> Matrix:
        """Return the closed-form pNML regret in nats of rows (n, M), shape (n,)."""
        return np.asarray(theorem.regret(self.predict_log_proba(x), self.subspace.xtg(to_numpy(x)), log=True))

    def genie(self, x: Any) -> Matrix:
        """Return the closed-form genie of rows (n, M), shape (n, C)."""
        return np.asarray(theorem.genie(self.predict_log_proba(x), self.subspace.xtg(to_numpy(x)), log=True))

    def refit_genie(self, x: Any) -> Matrix:
        """Return the genie of one row (M,) by explicit refits, one per label with the row added, shape (C,).

        As in the proof of Lemma 1, the assumed label's own weights are refitted to the target ln Σ_j exp(θ_jᵀx), which
        is the inverse softmax of probability one, and the other classes keep theirs.
        """
        x = check_rows(to_numpy(x)[None], self._rows.shape[1])[0]
        logits = x @ self.theta
        certain = np.logaddexp.reduce(logits)
        pseudo_inverse = np.linalg.pinv(np.vstack([self._rows, x]))
        refitted = x @ pseudo_inverse @ np.vstack([self._targets, np.full(self.n_classes, certain)])
        others = np.where(np.eye(self.n_classes, dtype=bool), refitted, logits)
        return np.asarray(np.exp(refitted - np.logaddexp.reduce(others, axis=1)))
