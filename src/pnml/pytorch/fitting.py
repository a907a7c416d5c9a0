"""One pass of a guarded model over the training set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnml.core.correlation import Correlation
from pnml.core.sample import RowSample
from pnml.pytorch.distributed import Found, agree_over_ranks, sum_over_ranks
from pnml.pytorch.layers import LayersNotFoundError, warn_of_fallback

if TYPE_CHECKING:
    from pnml.core.detector import Detector
    from pnml.pytorch.guard import Guard
    from pnml.pytorch.outputs import Outputs


class TrainingPass:
    """The statistic of the batches that a guard has been shown so far.

    Args:
        guard: whose model is run; its ``found_layers`` become () where they cannot be watched in every batch.
    """

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self._detector: Detector | None = None

    def add(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run the model on a batch and add its embeddings and features."""
        outputs = self._run(args, kwargs)
        if self._detector is None:
            self._detector = self.guard.empty_detector()
        outputs = outputs.counting()
        self._detector.partial_fit(outputs.embeddings, features=outputs.features)

    def _run(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Outputs:
        try:
            outputs = self.guard.run(args, kwargs)
            self._check_widths(outputs)
        except LayersNotFoundError as error:
            if not self.guard.may_fall_back:
                raise
            warn_of_fallback(str(error))
            self._fall_back()
            return self.guard.run(args, kwargs)
        return outputs

    def _check_widths(self, outputs: Outputs) -> None:
        known = () if self._detector is None else self._detector.feature_widths
        for name, width, features in zip(self.guard.layers, known, outputs.features, strict=False):
            if features.shape[1] != width:
                raise LayersNotFoundError(f"layer {name!r} had {width} features, and has {features.shape[1]} now")

    def _fall_back(self) -> None:
        """Go on with the embeddings alone."""
        self.guard.found_layers = ()
        seen, self._detector = self._detector, self.guard.empty_detector()
        if seen is not None:
            self._detector.merge(embeddings_alone(seen.correlation))

    def finish(self) -> Detector:
        """Return the fitted detector, of the batches of all ranks under ``torch.distributed``."""
        guard = self.guard
        agreed = agree_over_ranks(self._found())
        if agreed is None:
            raise ValueError("the loader yielded no samples: nothing to fit")
        guard.found_head, layers, guard.mask_source = agreed
        guard.head_name = guard.found_head.name
        if guard.found_layers and not layers:
            self._fall_back()
        guard.found_layers = layers
        mine = self.guard.empty_detector() if self._detector is None else self._detector
        statistic = sum_over_ranks(mine.correlation)
        if statistic.count + statistic.left_out == 0:
            raise ValueError("the loader yielded no samples: nothing to fit")
        detector = self.guard.empty_detector().merge(statistic)
        _ = detector.model  # decomposed now, so that warnings come from here and the first call is fast
        return detector

    def _found(self) -> Found | None:
        """Return how the guard reads its model, None where it has seen no batch."""
        guard = self.guard
        if guard.found_head is None or guard.found_layers is None:
            return None
        return Found(guard.found_head, guard.found_layers, guard.mask_source)


def embeddings_alone(statistic: Correlation) -> Correlation:
    """Return the statistic of the first layer of the rows."""
    if not statistic.count:
        empty = Correlation((statistic.widths or ())[:1], unit_norm=statistic.unit_norm, n_classes=statistic.n_classes)
        empty.left_out = statistic.left_out
        return empty
    width, sample = len(statistic.matrix), statistic.sample
    return Correlation.restore(
        statistic.matrix,
        statistic.count,
        statistic.norm_sum,
        unit_norm=statistic.unit_norm,
        sample=None if sample is None else RowSample(sample.keys, sample.rows[:, :width], sample.classes),
        left_out=statistic.left_out,
        classes=(statistic.class_counts, statistic.class_sums[:, :width]),
    )
