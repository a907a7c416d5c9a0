"""The progress of a training."""

from __future__ import annotations

import math
import sys
from datetime import timedelta
from typing import NamedTuple


class Progress(NamedTuple):
    """The progress of a training. Values that are not known yet are NaN.

    Attributes:
        epoch: the current epoch, from 1.
        epochs: the number of epochs.
        step: the number of batches done in this epoch; 0 is reported once, at the start.
        steps: the number of batches in an epoch.
        loss: mean of the last complete epoch.
        train_accuracy: on the augmented images of the last complete epoch, in percent.
        test_accuracy: when last measured, in percent.
        seconds_left: an estimate from the last complete epoch.

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
        """Return one line with the known values."""
        parts = (
            ("loss {:.3f}", self.loss),
            ("train {:.1f} %", self.train_accuracy),
            ("test {:.2f} %", self.test_accuracy),
        )
        known = [text.format(value) for text, value in parts if not math.isnan(value)]
        if not math.isnan(self.seconds_left):
            known.append(f"{timedelta(seconds=int(self.seconds_left))} left")
        return f"epoch {self.epoch}/{self.epochs}: {', '.join(known) or 'started'}"


def log_epochs(progress: Progress) -> None:
    """Write a line to stderr at the start and after every epoch."""
    if progress.step in {0, progress.steps}:
        sys.stderr.write(f"{progress}\n")
        sys.stderr.flush()
