"""The training loop: deterministic given the seed, and resumable after an interruption at any point."""

from __future__ import annotations

import copy
import math
import sys
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import torch

from pnml_bench import zoo
from pnml_bench.training.augment import accuracy, to_device, to_labelled
from pnml_bench.training.epoch import Trainer
from pnml_bench.training.outliers import Outliers
from pnml_bench.training.settings import (
    check_arguments,
    check_same_settings,
    partial_path,
    read_metadata,
    read_partial,
    training_settings,
    write_partial,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from pnml_bench.data import ImageSet
    from pnml_bench.training.augment import Labelled
    from pnml_bench.training.recipes import Recipe
    from pnml_bench.training.settings import OutlierSet


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


_TEST_EVERY = 10  # epochs


@dataclass(frozen=True)
class TrainingResult:
    """The result of a training.

    Attributes:
        network: in evaluation mode, on the CPU.
        test_accuracy: on the whole test set, in percent; in float32, or TF32 where PyTorch uses it for convolutions.
        path: the checkpoint, for :func:`pnml_bench.zoo.load`.
        accuracy_before: of the network that was tuned, on the same test set; None for a training from random weights.
            A tuning that costs much of it took test images for outliers.
    """

    network: zoo.Network
    test_accuracy: float
    path: Path
    accuracy_before: float | None = None


def train(
    recipe: Recipe,
    train_set: ImageSet,
    test_set: ImageSet,
    *,
    out: str | os.PathLike[str],
    device: str | torch.device | None = None,
    seed: int = 0,
    start: zoo.Network | None = None,
    outliers: Sequence[OutlierSet] = (),
    report: Callable[[Progress], object] = lambda _progress: None,
    float16: bool = False,
    save_every: float = 30.0,
) -> TrainingResult:
    """Train a network, test it, and write it to ``out`` with its recipe and its test accuracy.

    An interrupted training resumes when called again with the same arguments, and ends with the same weights as an
    uninterrupted one; a finished one is loaded from ``out``. On a GPU the network is compiled, runs in bfloat16, and
    its steps are replayed as a CUDA graph; on the CPU it runs in float32. All images are kept on the device.

    Args:
        recipe: returned by :func:`pnml_bench.training.recipe`.
        train_set: images with labels.
        test_set: images with labels; does not affect the weights.
        out: the ``.safetensors`` file to write. An unfinished training is kept in ``*.partial.safetensors`` beside it.
        device: "cpu", "cuda", ...; by default a GPU if available.
        seed: seed for initial weights, order and augmentation of the images, dropout, and outliers.
        start: a trained network to tune, not modified; random weights by default.
        outliers: for recipes with a penalty: sets of the same image size, or "transformed" for training images that
            are shuffled in patches, noisy, inverted, or rotated and recoloured.
        report: called with the progress after every batch, such as :func:`pnml_bench.training.log_epochs`.
        float16: round weights of layers to float16 when the training has ended, before the test: half the file.
            Batch norms stay as they are.
        save_every: minimum number of seconds between saves of the unfinished training, at the end of an epoch.

    Raises:
        ValueError: the arguments are inconsistent, an existing file is from another training, or the loss is not
            finite.
    """
    out, device = Path(out), torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    check_arguments(recipe, out, seed, start, outliers)
    settings = training_settings(recipe, train_set, test_set, seed=seed, start=start, outliers=outliers)
    unfinished = partial_path(out)
    if out.exists():
        metadata = read_metadata(out)
        check_same_settings(out, metadata, settings)
        unfinished.unlink(missing_ok=True)
        return _result(zoo.load(out), out, metadata)
    out.parent.mkdir(parents=True, exist_ok=True)

    train_data, test_data = (to_labelled(one, recipe.num_classes, device) for one in (train_set, test_set))
    sources = [None if isinstance(one, str) else to_device(one, device) for one in outliers]
    outlier_mixture = None
    if sources:
        digits, black_border = not recipe.flip, recipe.black_border
        outlier_mixture = Outliers(sources, train_data.images, digits=digits, black_border=black_border)
    with _reproducible(device):
        torch.manual_seed(_epoch_seed(seed, 0))
        network = zoo.create(recipe.model, recipe.num_classes) if start is None else copy.deepcopy(start)
        network.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in the stubs
        of_start = {} if start is None else {"accuracy_before": str(accuracy(network, test_data))}
        before = math.nan if outlier_mixture is None else accuracy(network, train_data)
        trainer = Trainer(recipe, network, train_data, outlier_mixture, train_accuracy=before / 100)
        done = read_partial(unfinished, network, trainer.optimizer, settings=settings) if unfinished.exists() else 0

        def save(epoch: int) -> None:
            write_partial(unfinished, network, trainer.optimizer, epoch=epoch, settings=settings)

        _run(trainer, test_data, seed=seed, done=done, report=report, save=save, save_every=save_every)
        if float16:
            zoo.round_to_float16(network)
        test_accuracy = accuracy(network, test_data)
    network.to(device="cpu", memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    results = {
        "test_accuracy": str(test_accuracy),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "device": device.type,
        "torch": torch.__version__,
        "arithmetic": trainer.arithmetic,
    }
    zoo.save(network, out, extra=settings | of_start | results, float16=float16)
    unfinished.unlink(missing_ok=True)
    return _result(network, out, of_start | results)


def _result(network: zoo.Network, path: Path, metadata: dict[str, str]) -> TrainingResult:
    before = metadata.get("accuracy_before")
    return TrainingResult(network, float(metadata["test_accuracy"]), path, None if before is None else float(before))


def _run(
    trainer: Trainer,
    test_data: Labelled,
    *,
    seed: int,
    done: int,
    report: Callable[[Progress], object],
    save: Callable[[int], None],
    save_every: float,
) -> None:
    """Train for the epochs after ``done``."""
    epochs = trainer.recipe.epochs
    now = Progress(done + 1, epochs, 0, trainer.steps)
    report(now)
    saved = time.monotonic()
    for epoch in range(done + 1, epochs + 1):
        started = time.monotonic()
        loss, train_accuracy = trainer.run(
            epoch, _epoch_seed(seed, epoch), partial(_report_step, report, now._replace(epoch=epoch))
        )
        if not math.isfinite(loss):
            raise ValueError(f"the loss is {loss} after epoch {epoch}: lower the learning rate lr={trainer.recipe.lr}")
        test_accuracy = now.test_accuracy
        if epoch % _TEST_EVERY == 0:
            test_accuracy = accuracy(trainer.network, test_data, mixed_precision=trainer.mixed_precision)
        if epoch < epochs and time.monotonic() - saved >= save_every:
            save(epoch)
            saved = time.monotonic()
        seconds_left = (epochs - epoch) * (time.monotonic() - started)
        now = Progress(epoch, epochs, trainer.steps, trainer.steps, loss, train_accuracy, test_accuracy, seconds_left)
        report(now)


def _report_step(report: Callable[[Progress], object], now: Progress, step: int) -> None:
    """Report the progress after a batch, except the last one: the epoch is reported with its results."""
    if step < now.steps:
        report(now._replace(step=step))


@contextmanager
def _reproducible(device: torch.device) -> Iterator[None]:
    """Make cuDNN deterministic and preserve the caller's random state."""
    cudnn = torch.backends.cudnn
    flags = cudnn.benchmark, cudnn.deterministic
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        cudnn.benchmark, cudnn.deterministic = flags


def _epoch_seed(seed: int, epoch: int) -> int:
    """Return the seed of one epoch; epoch 0 stands for the initial weights."""
    return int(np.random.SeedSequence((seed, epoch)).generate_state(1)[0])
