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

from pnml.backend.arrays import Array, DeviceConstants, namespace, to_numpy
from pnml.backend.rows import by_chunk, divisors, row_norms, wide_dtype
from pnml.core import theorem
from pnml.core.detector import Detector
from pnml.core.result import Part, Result, taken, warn_of_no_threshold
from pnml.core.rows import checked_logits
from pnml.core.scaling import LABEL_NOISE, balanced_label_scales
from pnml.core.scorer import compute_terms
from pnml.core.theorem import log_softmax

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pnml.core.batch import Batch
    from pnml.core.calibration import Threshold
    from pnml.core.calibration_scores import CalibrationScores
    from pnml.core.model import ScoringModel


class MultiLabelResult(Result):
    """One entry per sample and label; ``score``, ``p_value`` and ``is_ood`` have one per sample.

    Args:
        detector: which found it.
        batch: of the embeddings.
        regrets: of every label, shape (n, labels).
        logits: of every label, where the model gave them.
    """

    def __init__(self, detector: MultiLabelDetector, batch: Batch, regrets: Array, logits: Array | None = None) -> None:
        largest = namespace(regrets).max(regrets, axis=-1)
        super().__init__(batch, largest, detector.exact_scorer, detector.threshold, logits)
        self._detector, self._regrets = detector, regrets

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
        if self._given_logits is not None:
            return self._given_logits
        return self._convert(self._scorer.logits(self._batch.unchanged_rows()))[:, 1:]

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
        return self._convert(self._detector.label_terms(self._batch.unchanged_rows(), self._batch.eps)[1])

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

    @property
    def _all_scales(self) -> tuple[float, float, float]:
        if self._scales is None and self.embedding_scale == "auto" and self.correlation.count:
            self._scales = *balanced_label_scales(self.correlation, self.weight[1:], self.bias[1:]), LABEL_NOISE
        return super()._all_scales

    def __call__(
        self, embeddings: Array, *, features: Sequence[Array] | None = None, logits: Array | None = None
    ) -> MultiLabelResult:
        """Return labels, probabilities, the regret of every label and, once calibrated, p-values and decisions.

        Args:
            embeddings: of any array library, shape (n, M).
            features: of earlier layers, if the detector was fitted with them.
            logits: the model's own logits of its labels, shape (n, labels), where they are known.
        """
        return self._result_of_labels(self._check_batch(embeddings, features), logits)

    def of_rows(self, rows: Array, logits: Array) -> MultiLabelResult:
        """Return what a call returns, given embeddings and features side by side, (n, M of all layers), and logits."""
        return self._result_of_labels(self._batch_of_rows(rows), logits)

    def _result_of_labels(self, batch: Batch, logits: Array | None) -> MultiLabelResult:
        regrets = batch.finish(self.label_terms(batch.rows, batch.eps)[0])
        return MultiLabelResult(self, batch, regrets, checked_logits(logits, *regrets.shape))

    def calibration_scores(
        self,
        embeddings: Array,
        *,
        features: Sequence[Array] | None = None,
        logits: Array | None = None,
        leave_one_out: bool = False,
    ) -> CalibrationScores:
        """Return what a threshold is set from; the class of a sample is its strongest label, or that of no label.

        Args:
            embeddings: as for :meth:`calibrate`.
            features: as for :meth:`calibrate`.
            logits: not needed.
            leave_one_out: as for :meth:`calibrate`.
        """
        del logits
        return super().calibration_scores(embeddings, features=features, leave_one_out=leave_one_out)

    def label_terms(self, rows: Array, eps: float, *, as_if_unseen: bool = False) -> tuple[Array, Array]:
        """Return the regret and the pNML probability of every label, both of shape (n, labels)."""
        model, dtype = self.model, wide_dtype(rows)
        weight, bias = self.scaled_head
        constants = *DeviceConstants(weight[1:].T, bias[1:]).to(rows, dtype), *model.constants.to(rows, dtype)
        found: tuple[Array, Array] = by_chunk(
            _terms_chunk, rows, dtype, constants, model, eps, as_if_unseen, width=model.row_width + 4 * len(bias)
        )
        return found

    def _score_rows(self, rows: Array, eps: float) -> Array:
        return self._largest(rows, eps, as_if_unseen=False)

    def _score_left_out(self, rows: Array, eps: float) -> Array:
        return self._largest(rows, eps, as_if_unseen=True)

    def _largest(self, rows: Array, eps: float, *, as_if_unseen: bool) -> Array:
        regrets, _ = self.label_terms(rows, eps, as_if_unseen=as_if_unseen)
        return namespace(rows).max(regrets, axis=-1)


def _terms_chunk(
    x: Array,
    constants: tuple[Array, ...],
    model: ScoringModel,
    eps: float,
    as_if_unseen: bool,  # noqa: FBT001
) -> tuple[Array, Array]:
    """Return the regrets of labels and their pNML probabilities, (n, labels) each."""
    weight, bias, *others = constants
    xp = namespace(x)
    terms = compute_terms(x, tuple(others), model, eps, as_if_unseen=as_if_unseen)
    embeddings = x[:, : model.n_features]
    if model.unit_norm:
        embeddings = embeddings / divisors(row_norms(embeddings))[:, None]
    z = embeddings @ weight + bias
    log_p = log_softmax(xp.stack([xp.zeros_like(z), z], axis=-1))
    if model.label_noise:
        log_p = xp.log((1 - model.label_noise) * xp.exp(log_p) + model.label_noise / 2)
    t = terms.xtg[:, :, None]
    regrets = theorem.regrets(log_p, t)
    regrets = xp.where(terms.undirected[:, None], xp.full_like(regrets, float(np.log(2))), regrets)
    return regrets, theorem.predictives(log_p, t)[..., 1]
