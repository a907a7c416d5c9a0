"""One pass of a guarded model over the training set."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from pnml.core.correlation import Correlation
from pnml.core.sample import RowSample
from pnml.pytorch.batches import naming_batch
from pnml.pytorch.distributed import Found, agree_over_ranks, sum_over_ranks
from pnml.pytorch.layers import LayersNotFoundError, warn_of_fallback

if TYPE_CHECKING:
    from torch import Tensor

    from pnml.core.detector import Detector
    from pnml.pytorch.guard import Guard
    from pnml.pytorch.outputs import Outputs


_MOST_ROWS = 4096  # that wait
_WIDE_ROWS, _WIDE = 1024, 1 << 24  # fewer wait, but so many, if they hold as many numbers: 64 MB in float32


class TrainingPass:
    """The statistic of the batches that a guard has been shown so far.

    Rows wait until there are many of them: adding to the sums Σxxᵀ of wide layers takes as long for one row as for
    hundreds.

    Args:
        guard: whose model is run; its ``found_layers`` become () where they cannot be watched in every batch.
    """

    def __init__(self, guard: Guard) -> None:
        self.guard = guard
        self._detector: Detector | None = None
        self._widths: list[int] = []  # of the features of each layer
        self._waiting: list[tuple[int, Tensor]] = []  # numbers of batches, and their rows

    def add(self, number: int, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Run the model on a batch of the loader and keep its embeddings and features, to be learnt from."""
        outputs = self._run(args, kwargs)
        if self._detector is None:
            self._detector = self.guard.empty_detector()
            self._widths = outputs.widths
        rows = outputs.counting().rows
        self._waiting.append((number, rows if outputs.parts else rows.clone()))  # no view of a larger tensor
        count = sum(len(rows) for _, rows in self._waiting)
        if count >= _MOST_ROWS or (count >= _WIDE_ROWS and count * rows.shape[1] >= _WIDE):
            self._learn()

    def _learn(self) -> None:
        """Add the rows that wait to the statistic; an error names their batch."""
        waiting, self._waiting = self._waiting, []
        if not waiting:
            return
        try:
            self._add(torch.cat([rows for _, rows in waiting]))
        except ValueError:
            for number, rows in waiting:
                with naming_batch(number):
                    self._add(rows)
            raise

    def _add(self, rows: Tensor) -> None:
        detector = self._detector
        assert detector is not None  # noqa: S101 - rows wait for it
        embeddings, *features = torch.split(rows, [detector.n_features, *self._widths], dim=1)
        detector.partial_fit(embeddings, features=features)

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
        for name, width, found in zip(self.guard.layers, self._widths, outputs.widths, strict=False):
            if found != width:
                raise LayersNotFoundError(f"layer {name!r} had {width} features, and has {found} now")

    def _fall_back(self) -> None:
        """Go on with the embeddings alone."""
        self._learn()
        self.guard.found_layers, self._widths = (), []
        seen, self._detector = self._detector, self.guard.empty_detector()
        if seen is not None:
            self._detector.merge(embeddings_alone(seen.correlation))

    def finish(self) -> Detector:
        """Return the fitted detector, of the batches of all ranks under ``torch.distributed``."""
        self._learn()
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
