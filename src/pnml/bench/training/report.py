"""How far a training is."""

from __future__ import annotations

import math
import sys
from datetime import timedelta
from typing import NamedTuple


class Progress(NamedTuple):
    """Where a training stands. Values that are not known yet are NaN.

    Attributes:
        epoch: the pass that is under way, from 1.
        epochs: of the whole training.
        step: how many batches of this pass are done; 0 is told once, at the start.
        steps: of a pass.
        loss: mean of the last whole pass.
        train_accuracy: on the moved images of the last whole pass, in percent.
        test_accuracy: when last measured, in percent.
        seconds_left: if all passes take as long as the last whole one.

    >>> print(Progress(2, 9, 100, 100, 0.5, 84.25, math.nan, 75.3))
    epoch 2/9: loss 0.500, train 84.2 %, 0:01:15 left
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float = math.nan
    train_accuracy: float = math.nan
    test_accuracy: float = math.nan
    seconds_left: float = math.nan

    def __str__(self) -> str:
        """One line, without what is not known."""
        parts = (
            ("loss {:.3f}", self.loss),
            ("train {:.1f} %", self.train_accuracy),
            ("test {:.2f} %", self.test_accuracy),
        )
        known = [text.format(value) for text, value in parts if not math.isnan(value)]
        if not math.isnan(self.seconds_left):
            known.append(f"{timedelta(seconds=int(self.seconds_left))} left")
        return f"epoch {self.epoch}/{self.epochs}: {', '.join(known) or 'begins'}"


def log_epochs(progress: Progress) -> None:
    """Write a line to stderr after every pass: a report for scripts and logs."""
    if progress.step in {0, progress.steps}:
        sys.stderr.write(f"{progress}\n")
        sys.stderr.flush()
