"""Watch a stream of scored samples: has it changed since calibration, since when, and what drives it?"""

from __future__ import annotations

import math
import warnings
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.arrays import as_array, to_numpy
from pnml.backend.read_errors import naming_file
from pnml.backend.state import load_state, save_state
from pnml.core import monitor_state
from pnml.core.by_class import check_predictions
from pnml.core.calibration import Threshold
from pnml.core.conformal import check_share
from pnml.core.history import History
from pnml.core.martingale import Martingale
from pnml.core.ranks import RankPool
from pnml.core.result import Result

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from pnml.backend.arrays import Array
    from pnml.core.history import Period

_AT_ONCE = 4096  # samples whose bets are in memory at once


class CalibrationSourceWarning(UserWarning):
    """The calibration scores are of training rows: a stream of fresh samples differs from them without any change."""


class Monitor:
    """Evidence that a stream of samples no longer looks like the calibration data, valid at any time.

    Every regret is ranked among the calibration scores and all samples before it, and a
    :mod:`test martingale <pnml.core.martingale>` bets that these ranks are not uniform. While calibration data and
    stream are alike, the evidence ever reaches 1/``alpha`` with probability ``alpha`` at most, however long the stream
    and however small the calibration set. It may be looked at after every sample. Regrets and decisions of samples stay
    those of the detector.

    After an alarm the monitor goes on counting, and the alarm stays. Samples of the change join those that later ones
    are compared with, so make a new monitor when the change is dealt with.

    Args:
        calibrated: a calibrated :class:`~pnml.Detector`, a guard, a scikit-learn estimator of this package, or a
            :class:`~pnml.Threshold`.
        alpha: the probability of ever raising a false alarm.
        seed: of the random numbers that decide between equal regrets.

    Attributes:
        threshold: the :class:`~pnml.Threshold`, for the calibration scores and to flag samples.
        layer_names: of the earlier layers that the detector reads.
        count: how many samples were seen.
        log_evidence: the natural logarithm of the evidence now; it may fall again.
        log_peak: the largest that it was.
        alarm_at: the sample, counted from 1, at which the evidence reached 1/``alpha``; None before.
        since: the sample, counted from 1, from which on the stream is likely to be changed, as estimated when the alarm
            was raised; None before.
        tables: digests of the score tables that were taken in by ``pnml monitor``, so that none counts twice.
        history: what the stream looked like over time, see :class:`~pnml.core.history.History`.

    >>> from pnml.core.calibration import calibrate
    >>> rng = np.random.default_rng(0)
    >>> monitor = Monitor(calibrate(rng.normal(size=500)), alpha=0.01)
    >>> monitor.update(rng.normal(size=2000))
    False
    >>> monitor.update(rng.normal(loc=2, size=50))
    True
    >>> monitor
    Monitor(2,050 samples, ... evidence 10^..., since sample 2,0...)
    """

    def __init__(self, calibrated: Any, *, alpha: float = 0.01, seed: int = 0) -> None:
        check_share("alpha", alpha)
        if not 0 <= seed < 1 << 63:
            raise ValueError(f"seed must be a whole number from 0 on, got {seed}")
        detector = next((found for name in _HELD if (found := getattr(calibrated, name, None)) is not None), calibrated)
        threshold = detector if isinstance(detector, Threshold) else getattr(detector, "threshold", None)
        if not isinstance(threshold, Threshold):
            raise ValueError(  # noqa: TRY004 - of the right type, but not calibrated
                f"expected a calibrated detector or a threshold, got {type(calibrated).__name__} without a threshold: "
                "call calibrate(held_out, false_alarm_rate=0.05) first"
            )
        if threshold.source != "held-out":
            warnings.warn(
                f"the calibration scores are {threshold.source}, and fresh samples differ from them without any "
                "change: expect alarms, or calibrate on held-out samples",
                CalibrationSourceWarning,
                stacklevel=2,
            )
        self.threshold, self.alpha, self.seed = threshold, float(alpha), int(seed)
        self.layer_names: tuple[str, ...] = tuple(getattr(detector, "watched_names", ()))
        self.log_evidence, self.log_peak, self.alarm_at, self.since = 0.0, 0.0, None, None
        self.tables: tuple[str, ...] = ()
        self.history = History(threshold.n_classes, 1 + len(self.layer_names))
        self._pool, self._martingale = RankPool(threshold.scores), Martingale()

    alarm_at: int | None
    since: int | None

    @property
    def count(self) -> int:
        """How many samples were seen."""
        return self._martingale.count

    @property
    def evidence(self) -> float:
        """The evidence for a change: what a bet of 1 on it has become; infinity beyond what a float can hold."""
        return math.exp(self.log_evidence) if self.log_evidence < 709 else math.inf

    @property
    def periods(self) -> tuple[Period, ...]:
        """The stream before and since the change, cut at a window of ``history``; one period without an alarm.

        There is one as well where the stream was changed from its first window on, and none before the first sample.
        """
        return self.history.split(self.since)

    @property
    def verdict(self) -> str:
        """What the evidence says, in one line."""
        if self.alarm_at is not None:
            return (
                f"the stream no longer looks like the calibration data: evidence {_power(self.log_peak)}, since sample "
                f"{self.since:,}"
            )
        return (
            f"no change noticed: the evidence was {_power(self.log_peak)} at most, and {1 / self.alpha:,.6g} raises an "
            "alarm"
        )

    def update(
        self, scores: Result | Array, prediction: Array | None = None, strangest_layer: Array | None = None
    ) -> bool:
        """Take in the next samples of the stream, in their order; return whether there was an alarm, now or before.

        One batch or many small ones give the same state.

        Args:
            scores: a :class:`~pnml.Result`, which has all that is needed, or regrets of shape (m,). A regret that is
                no number counts as the largest.
            prediction: the predicted class of each, to see which classes drive a change, and for thresholds by class.
            strangest_layer: the strangest layer of each sample, 0 for the embedding; those of flagged samples count.
        """
        flagged = None
        if isinstance(scores, Result):
            flagged = scores.is_ood if scores.is_calibrated else None
            if scores.prediction.ndim == 1:  # labels that may each be true have no class
                prediction = scores.prediction
            if self.layer_names and (flagged is None or flagged.any()):
                strangest_layer = scores.strangest_layer
            scores = getattr(scores, "score", scores.regret)
        regret = to_numpy(as_array(scores), None)
        if regret.dtype == bool:
            raise ValueError("expected regrets, got decisions: pass the result, monitor.update(result), or its regret")
        regret = to_numpy(regret)
        if regret.ndim != 1:
            raise ValueError(f"expected regrets of shape (m,), got shape {regret.shape}")
        classes = None if prediction is None else self._classes(prediction, len(regret))
        layers = None if strangest_layer is None else self._layers(strangest_layer, len(regret))
        is_ood = self.threshold.is_ood(regret, classes) if flagged is None else flagged
        self._add(regret, to_numpy(is_ood, bool), classes, layers)
        return self.alarm_at is not None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the whole state to a safetensors file; :meth:`load` restores it exactly."""
        arrays, info = monitor_state.to_state(self)
        save_state(path, monitor_state.KIND, monitor_state.VERSION, arrays, info)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Monitor:
        """Read a monitor written by :meth:`save`."""
        with naming_file(path):
            arrays, info = load_state(path, monitor_state.KIND, monitor_state.VERSION)
        try:
            state = monitor_state.from_state(arrays, info)
        except ValueError as error:
            raise ValueError(f"{path} holds no monitor that can be used: {error}: start a new one") from error
        monitor = cls.__new__(cls)
        monitor.__dict__.update(state)
        return monitor

    def __repr__(self) -> str:
        share = f", {self.history.flagged.sum() / self.count:.1%} flagged" if self.count else ""
        return f"Monitor({self.count:,} samples{share}: {self.verdict})"

    def _add(
        self,
        regret: NDArray[np.float64],
        flagged: NDArray[np.bool_],
        classes: NDArray[np.int64] | None,
        layers: NDArray[np.int64] | None,
    ) -> None:
        """Rank, bet and count, some samples at a time."""
        numbers = np.random.Generator(np.random.PCG64(self.seed).advance(self.count))
        for start in range(0, len(regret), _AT_ONCE):
            here, before = slice(start, start + _AT_ONCE), copy(self._martingale)
            p_values = self._pool.p_values(regret[here], 1 - numbers.random(len(regret[here])))
            log_evidence = self._martingale.grow(p_values)
            columns = (None if column is None else column[here] for column in (classes, layers))
            self.history.add(p_values, flagged[here], log_evidence, *columns)
            reached = np.flatnonzero(log_evidence >= -math.log(self.alpha))
            if self.alarm_at is None and len(reached):
                before.grow(p_values[: reached[0] + 1])
                self.alarm_at, self.since = before.count, int(before.since)
            self.log_evidence = float(log_evidence[-1])
            self.log_peak = max(self.log_peak, float(log_evidence.max()))

    def _classes(self, prediction: Array, count: int) -> NDArray[np.int64]:
        found = _numbers("prediction", prediction, count)
        if len(found):
            check_predictions(found, self.threshold.n_classes or int(found.max()) + 1)
        return found.astype(np.int64)

    def _layers(self, strangest_layer: Array, count: int) -> NDArray[np.int64]:
        found = _numbers("strangest_layer", strangest_layer, count)
        most = len(self.layer_names)
        if ((found < 0) | (found > most) | (found != found.astype(np.int64))).any():
            raise ValueError(
                f"strangest_layer holds {found.min()} to {found.max()}: expected 0, the embedding, to {most}, the last "
                f"of {most} earlier layers"
            )
        return found.astype(np.int64)


_HELD = ("detector", "detector_")  # where guards and scikit-learn estimators keep their detector


def _numbers(name: str, values: Array, count: int) -> NDArray[Any]:
    found = to_numpy(as_array(values), None)
    if found.shape != (count,):
        raise ValueError(f"expected one {name} for each of {count} regrets, got shape {found.shape}")
    return found


def _power(log_evidence: float) -> str:
    """Return evidence as text, as a power of ten where it is large.

    >>> _power(np.log(2.5)), _power(np.log(2e6))
    ('2.5', '10^6.3')
    """
    return f"10^{log_evidence / math.log(10):.1f}" if log_evidence >= math.log(1e4) else f"{math.exp(log_evidence):.3g}"
