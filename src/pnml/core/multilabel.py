"""Several labels a sample, each true or not: one regret per label.

A label with logit z is a classifier of two classes, with logits (0, z) and probabilities 1 − σ(z) and σ(z). The theorem
holds for each label by itself, and the leverage is the same for all: it is a property of the embedding. So with
``t = xᵀg`` and p one of the two probabilities of label l, the regret of the label is ``Γ_l = log Σ_p p / (p + p^t (1 −
p))``, at most log 2.

What "auto" takes from classes is taken from the label that is most probable in a sample, or from none where no label is
more likely than not: that is class 0, whose logit is always 0.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import Array, namespace, to_numpy
from pnml.backend.rows import wide_dtype
from pnml.core import theorem
from pnml.core.detector import Detector
from pnml.core.result import Part, Result, taken, warn_of_no_threshold
from pnml.core.rows import checked_logits
from pnml.core.scaling import Scales, balanced_label_scales
from pnml.core.scorer import Chunk, compute_terms
from pnml.core.theorem import log_softmax

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.core.batch import Batch
    from pnml.core.calibration import Threshold
    from pnml.core.model import ScoringModel
    from pnml.core.scorer import Terms

_CHUNK = 4096  # rows


class MultiLabelResult(Result):
    """One entry per sample and label; ``score``, ``p_value`` and ``is_ood`` have one per sample.

    Args:
        detector: which found it.
        batch: of the embeddings, with logits of "no label" before those of the labels, where the model gave them.
        regrets: of every label, shape (n, labels).
    """

    def __init__(self, detector: MultiLabelDetector, batch: Batch, regrets: Array) -> None:
        largest = namespace(regrets).max(regrets, axis=-1)
        super().__init__(batch, largest, detector.scorer, detector.threshold)
        self._detector = detector
        self._regrets = regrets

    @cached_property
    def score(self) -> Array:
        """The largest regret of the sample's labels, which the threshold is for, shape (n,)."""
        return self._batch.convert(self._regret)

    @cached_property
    def regret(self) -> Array:
        """The regret of every label in nats; larger = less trustworthy, at most log 2, shape (n, labels)."""
        return self._batch.convert(self._regrets)

    @cached_property
    def logits(self) -> Array:
        """The model's logits, shape (n, labels)."""
        logits: Array = super().logits
        return logits[:, 1:]

    @cached_property
    def prediction(self) -> Array:
        """Whether each label is more likely than not, shape (n, labels)."""
        return self.logits > 0

    def _decide(self, compare: Callable[[Threshold, Array, Array | None], Array]) -> Array | None:
        """Compare the score with the threshold; of ``by="prediction"`` with that of the strongest label, or of none."""
        if self._threshold is None:
            warn_of_no_threshold()
            return None
        xp = namespace(self.logits)
        with_none = xp.concat([xp.zeros_like(self.logits[:, :1]), self.logits], axis=1)
        return self._batch.convert(compare(self._threshold, self._regret, xp.argmax(with_none, axis=1)))

    @cached_property
    def probabilities(self) -> Array:
        """The model's own probability of each label, σ(z), shape (n, labels)."""
        xp = namespace(self.logits)
        z = xp.astype(self.logits, self.regret.dtype, copy=False)
        return xp.exp(log_softmax(xp.stack([xp.zeros_like(z), z], axis=-1)))[..., 1]

    @cached_property
    def pnml_probabilities(self) -> Array:
        """The pNML probability of each label, of the scaled embeddings, shape (n, labels)."""
        self._batch.unchanged_rows()
        return self._convert(self._detector.label_terms(self._batch)[1])

    def to_table(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return one NumPy column per quantity: of every label its regret and probability, of the sample its score."""
        return _table(self)

    def _part(self, choose: Callable[[Array], Array]) -> Part:
        return _MultiLabelPart(self, choose)


class _MultiLabelPart(Part):
    """Some samples of such a result, or all of them elsewhere."""

    score = taken("score")

    def to_table(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return one NumPy column per quantity: of every label its regret and probability, of the sample its score."""
        return _table(self)

    def _part(self, choose: Callable[[Array], Array]) -> Part:
        return _MultiLabelPart(self, choose)


def _table(result: MultiLabelResult | _MultiLabelPart) -> dict[str, np.ndarray[Any, Any]]:
    table = {"score": to_numpy(result.score), "xtg": to_numpy(result.xtg)}
    for name, values in {"probability": result.probabilities, "regret": result.regret}.items():
        table |= {f"{name}_{label}": column for label, column in enumerate(to_numpy(values).T)}
    if result.is_calibrated:
        table |= {"p_value": to_numpy(result.p_value), "is_ood": to_numpy(result.is_ood, bool)}
    return table


class MultiLabelDetector(Detector):
    """A detector for a model of several labels, each true or not.

    It is made, fitted, calibrated and saved as any :class:`~pnml.Detector`; of its weight and bias the first class has
    the logit 0 and stands for "no label". The score of a sample is the largest regret of its labels.

    >>> rng = np.random.default_rng(0)
    >>> train = rng.normal(size=(200, 4))
    >>> labels = np.vstack([np.zeros(4), rng.normal(size=(3, 4))])
    >>> result = MultiLabelDetector(labels).fit(train)(train)
    >>> result.regret.shape, result.score.shape
    ((200, 3), (200,))
    """

    task = "multilabel"

    def __init__(self, weight: Array, bias: Array | None = None, **options: Any) -> None:
        super().__init__(weight, bias, **options)
        if self.weight[0].any() or self.bias[0]:
            raise ValueError("the first row of the weight and of the bias must be 0: they are of no label")

    def _balanced_scales(self) -> Scales:
        return balanced_label_scales(self.correlation, self.weight[1:], self.bias[1:])

    def _checked_logits(self, logits: Array | None, rows: Array) -> Array | None:
        """Return logits of labels (n, labels) with that of no label before them, which is 0."""
        if logits is None:
            return None
        labels: Array = checked_logits(logits, rows.shape[0], self.n_classes - 1)
        xp = namespace(labels)
        return xp.concat([xp.zeros_like(labels[:, :1]), labels], axis=1)

    def _result(self, batch: Batch) -> MultiLabelResult:
        return MultiLabelResult(self, batch, batch.finish(self.label_terms(batch)[0]))

    def label_terms(self, batch: Batch, *, as_if_unseen: bool = False) -> tuple[Array, Array]:
        """Return the regret and the pNML probability of every label, both of shape (n, labels)."""
        model = self.model
        rows = batch.rows
        logits = batch.logits
        xp = namespace(rows)
        dtype = wide_dtype(rows)
        constants = model.constants(rows, dtype)

        def work(start: int) -> tuple[Array, Array]:
            x = xp.astype(rows[start : start + _CHUNK], dtype)
            z = None if logits is None else xp.astype(logits[start : start + _CHUNK], dtype)
            with np.errstate(all="ignore"):
                terms = compute_terms(model, constants, Chunk(x, z, batch.eps, as_if_unseen))
                return _of_labels(model, terms)

        found = [work(start) for start in range(0, max(1, rows.shape[0]), _CHUNK)]
        return xp.concat([regrets for regrets, _ in found]), xp.concat([q for _, q in found])

    def _regret(self, batch: Batch, *, leave_one_out: bool = False) -> Array:
        regrets, _ = self.label_terms(batch, as_if_unseen=leave_one_out)
        return namespace(regrets).max(regrets, axis=-1)


def _of_labels(model: ScoringModel, terms: Terms) -> tuple[Array, Array]:
    """Return the regrets of labels and their pNML probabilities, (n, labels) each."""
    xp = namespace(terms.logits)
    z = terms.logits[:, 1:] - terms.logits[:, :1]  # of the label, and of no label
    log_p = theorem.noisy_log_softmax(xp.stack([xp.zeros_like(z), z], axis=-1), model.label_noise)
    t = terms.xtg[:, None, None]
    regrets = theorem.regrets(log_p, t)
    if terms.undirected is not None:
        regrets = xp.where(terms.undirected[:, None], xp.full_like(regrets, float(np.log(2))), regrets)
    return regrets, theorem.predictives(log_p, t)[..., 1]
