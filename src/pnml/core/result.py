"""What a detector found about a batch, each quantity computed when it is first read."""

from __future__ import annotations

import warnings
from functools import cached_property
from typing import TYPE_CHECKING, Any

import array_api_compat as compat
import numpy as np

from pnml.backend.arrays import as_numpy_view, like, namespace, to_numpy
from pnml.core.calibration import Threshold
from pnml.core.theorem import log_softmax

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pnml.backend.arrays import Array
    from pnml.core.batch import Batch
    from pnml.core.scorer import Scorer

_OF_LAYERS = ("leverage_by_layer", "strangest_layer")
_FIELDS = ("logits", "prediction", "probabilities", "pnml_probabilities", "xtg", *_OF_LAYERS, "regret")
_DECIDED = ("p_value", "is_ood")


class NotCalibratedWarning(UserWarning):
    """A decision or a p-value was read without a threshold: it is None, which in a condition looks like a "no"."""


class Result:
    """One entry per sample, in the library and on the device of the input.

    The regret is computed when the result is made, the other fields when they are first read. If the memory of the
    embeddings was overwritten in between, those that need the embeddings raise ``RuntimeError``.

    A sample whose embedding or features are not finite, or too large to compute with, has a regret of NaN, the smallest
    p-value, and is flagged. A number, a slice, a mask or a list of numbers selects samples, and a loop goes over them:
    each is a result, too.

    >>> from pnml import Detector
    >>> detector = Detector(np.eye(2), np.zeros(2)).fit(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
    >>> result = detector(np.array([[3.0, 0.0], [np.nan, 0.0]]))
    >>> result[0]
    Result(class 0 with probability 0.9526, regret 0.02097 nats)
    >>> [len(result), len(result[:1]), result[np.isnan(result.regret)].regret]
    [2, 1, array([nan])]
    """

    def __init__(self, batch: Batch, regret: Array, scorer: Scorer, threshold: Threshold | None = None) -> None:
        batch.remember()
        self._batch = batch
        self._regret = regret
        self._scorer = scorer
        self._threshold = threshold

    @cached_property
    def regret(self) -> Array:
        """The score Γ in nats; larger = less trustworthy, shape (n,)."""
        return self._batch.convert(self._regret)

    @cached_property
    def logits(self) -> Array:
        """The model's logits, shape (n, C)."""
        if self._batch.given is not None:
            return self._batch.given
        return self._convert(self._scorer.logits(self._batch.unchanged_rows()))

    @cached_property
    def prediction(self) -> Array:
        """The most probable class, shape (n,)."""
        return namespace(self._relative_logits).argmax(self._relative_logits, axis=-1)

    @cached_property
    def probabilities(self) -> Array:
        """The model's own probabilities p, shape (n, C)."""
        logits = self._relative_logits
        xp = namespace(logits)
        with np.errstate(invalid="ignore"):  # of logits that are not finite
            return xp.exp(log_softmax(xp.astype(logits, self.regret.dtype, copy=False)))

    @cached_property
    def _relative_logits(self) -> Array:
        """The logits as they were given, or less what classes share, which must not be rounded along."""
        if self._batch.given is not None:
            return self._batch.given
        return self._convert(self._scorer.relative_logits(self._batch.unchanged_rows()))

    @cached_property
    def pnml_probabilities(self) -> Array:
        """The pNML probabilities q of the scaled embeddings, shape (n, C)."""
        return self._of_scorer(self._scorer.predictive)

    @cached_property
    def xtg(self) -> Array:
        """xᵀg in [0, 1], how little the training set says about the sample's direction, shape (n,)."""
        return self._of_scorer(self._scorer.xtg)

    @cached_property
    def leverage_by_layer(self) -> Array:
        """The shares of the embedding, every earlier layer and the lengths in the leverage h, shape (n, blocks).

        They sum to h, and xᵀg = h / (1 + h). A block in which the sample is like the training set has a share of 0.
        ``Detector.block_names`` has the names of the columns.
        """
        return self._of_scorer(self._scorer.shares)

    @cached_property
    def strangest_layer(self) -> Array:
        """The layer in which the sample is strangest, shape (n,): 0 is the embedding, l the l-th earlier layer.

        The number after the last layer stands for the lengths of all: no direction is strange, but their sizes are.

        It is the one whose leverage is farthest above that of training rows, in standard deviations of its logarithm.
        The largest share does not say this: the embedding has one in the leverage of every sample.
        """
        return self._batch.convert(self._scorer.strangest(self._batch.unchanged_rows(), self._batch.logits))

    @cached_property
    def p_value(self) -> Array | None:
        """The share of in-distribution data with a regret as large, shape (n,); None until calibrated."""
        return self._decide(Threshold.p_value)

    @cached_property
    def is_ood(self) -> Array | None:
        """Whether the regret exceeds the threshold, or is no number, shape (n,); None until calibrated."""
        return self._decide(Threshold.is_ood)

    def _decide(self, compare: Callable[[Threshold, Array, Array | None], Array]) -> Array | None:
        if self._threshold is None:
            warn_of_no_threshold()
            return None
        prediction = None if self._threshold.by is None else self.prediction
        return self._batch.convert(compare(self._threshold, self._regret, prediction))

    @property
    def is_calibrated(self) -> bool:
        """Whether there are p-values and decisions."""
        return self._threshold is not None

    def __len__(self) -> int:
        return int(self._regret.shape[0])

    def to_table(self) -> dict[str, np.ndarray[Any, Any]]:
        """Return one NumPy column per per-sample quantity, ready for ``pandas.DataFrame`` or ``pyarrow.table``.

        ``probability`` is the model's probability of its prediction.

        >>> from pnml import Detector
        >>> detector = Detector(np.eye(2), np.zeros(2)).fit(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]))
        >>> list(detector(np.eye(2)).to_table())
        ['prediction', 'probability', 'xtg', 'regret']
        """
        table = {
            "prediction": to_numpy(self.prediction, np.int64),
            "probability": to_numpy(self.probabilities).max(axis=-1),
            "xtg": to_numpy(self.xtg),
            "regret": to_numpy(self.regret),
        }
        if self.is_calibrated:
            table |= {"p_value": to_numpy(self.p_value), "is_ood": to_numpy(self.is_ood, bool)}
        return table

    def __getitem__(self, index: Any) -> Result:
        """Return the result of some of the samples: of one for a number, which is then the only one."""
        if isinstance(index, slice):
            return self._part(lambda values: values[index, ...])
        foreign = compat.is_array_api_obj(index) and not isinstance(index, np.ndarray)
        chosen = to_numpy(index, None) if foreign else np.asarray(index)
        if chosen.ndim == 0:
            return self[_slice_of(chosen, len(self))]
        if chosen.ndim > 1 or not (chosen.dtype == bool or np.issubdtype(chosen.dtype, np.integer) or not len(chosen)):
            raise IndexError(f"expected a number, a slice, a mask or a list of numbers, got {index!r}")
        if chosen.dtype == bool and len(chosen) != len(self):
            raise IndexError(f"a mask of {len(chosen)} entries does not fit {len(self)} samples")
        numbers = np.flatnonzero(chosen) if chosen.dtype == bool else chosen.astype(np.int64)
        outside = numbers[(numbers < -len(self)) | (numbers >= len(self))]
        if len(outside):
            raise IndexError(f"expected numbers of samples below {len(self)}, got {int(outside[0])}")
        numbers %= max(1, len(self))
        return self._part(lambda values: namespace(values).take(values, like(values, numbers), axis=0))

    def __iter__(self) -> Iterator[Result]:
        return (self[number : number + 1] for number in range(len(self)))

    def to(self, device: Any) -> Result:
        """Return the result with every field on a device, as the library of the fields names it."""
        return self._part(lambda values: compat.to_device(values, device))

    def cpu(self) -> Result:
        """Return the result with every field in the memory of the host."""
        return self._part(_on_host)

    def numpy(self) -> Result:
        """Return the result with every field as a NumPy array."""
        return self._part(lambda values: as_numpy_view(_on_host(values)))

    def __repr__(self) -> str:
        if len(self) == 1 and self.regret.ndim == 1 and self.prediction.ndim == 1:
            return self._described()
        names = _FIELDS + _DECIDED if self.is_calibrated else _FIELDS
        flagged = f", {int(to_numpy(self.is_ood).sum())} out-of-distribution" if self.is_calibrated else ""
        count = "1 sample" if len(self) == 1 else f"{len(self)} samples"
        return f"Result({count}{flagged}: {', '.join(names)})"

    def _described(self) -> str:
        """Return one line about the only sample."""
        (row,) = zip(*(column.tolist() for column in self.to_table().values()), strict=True)
        prediction, probability, _, regret, *decided = row
        text = f"class {prediction} with probability {probability:.4g}, regret {regret:.4g} nats"
        if decided:
            p_value, is_ood = decided
            text += f", p-value {p_value:.4g}: {'out-of-distribution' if is_ood else 'in-distribution'}"
        return f"Result({text})"

    def _part(self, choose: Callable[[Array], Array]) -> Part:
        """Return a result whose fields are made of those of this one."""
        return Part(self, choose)

    def _of_scorer(self, function: Callable[[Array, Array | None], Array]) -> Array:
        """Return what the scorer computes of the batch, if it is still there."""
        return self._convert(function(self._batch.unchanged_rows(), self._batch.logits))

    def _convert(self, values: Array) -> Array:
        return self._batch.convert(self._batch.finish(values))


def warn_of_no_threshold() -> None:
    """Warn that there are no decisions."""
    message = "there is no threshold, so is_ood and p_value are None: call calibrate(held_out) before"
    warnings.warn(message, NotCalibratedWarning, stacklevel=5)


def taken(name: str) -> Any:
    """Return a field that is taken from the whole result when it is first read."""
    return cached_property(lambda part: part.take(getattr(part.whole, name)))


class Part(Result):
    """Some samples of a result, or all of them elsewhere.

    Args:
        whole: the result.
        choose: makes a field of the part from one of the whole.
    """

    def __init__(self, whole: Result, choose: Callable[[Array], Array]) -> None:
        self.whole, self._choose, self._threshold = whole, choose, whole._threshold  # noqa: SLF001 - its own class

    def take(self, values: Array | None) -> Array | None:
        """Return the field of the part for one of the whole."""
        return None if values is None else self._choose(values)

    regret, logits, prediction, probabilities = map(taken, ("regret", "logits", "prediction", "probabilities"))
    pnml_probabilities, xtg = map(taken, ("pnml_probabilities", "xtg"))
    leverage_by_layer, strangest_layer = map(taken, _OF_LAYERS)
    p_value, is_ood = map(taken, _DECIDED)

    def __len__(self) -> int:
        return int(self.regret.shape[0])


def _slice_of(index: np.ndarray[Any, Any], count: int) -> slice:
    """Return the slice that holds one sample."""
    if not np.issubdtype(index.dtype, np.integer):
        raise IndexError(f"expected a number, a slice, a mask or a list of numbers, got {index}")
    number = int(index)
    if not -count <= number < count:
        raise IndexError(f"expected the number of a sample below {count}, got {number}")
    return slice(number % count, number % count + 1)


def _on_host(values: Array) -> Array:
    if compat.is_torch_array(values):
        return values.cpu()
    return to_numpy(values, None) if compat.is_cupy_array(values) else values
