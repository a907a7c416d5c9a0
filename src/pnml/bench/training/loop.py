"""The training: deterministic by seed, and able to go on after being killed at any point."""

from __future__ import annotations

import copy
import math
import time
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from pnml.bench import zoo
from pnml.bench.training.epoch import Trainer
from pnml.bench.training.measure import accuracy, to_device, to_labelled
from pnml.bench.training.outliers import Outliers
from pnml.bench.training.partial import partial_path, read_metadata, read_partial, write_partial
from pnml.bench.training.report import Progress
from pnml.bench.training.settings import check, describe, refuse_others

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Sequence

    from pnml.bench.data import ImageSet
    from pnml.bench.training.measure import Labelled
    from pnml.bench.training.recipes import Recipe
    from pnml.bench.training.settings import OutlierSet

_TEST_EVERY = 10  # epochs


@dataclass(frozen=True)
class TrainedResult:
    """What a training gives.

    Attributes:
        network: in evaluation mode, on the CPU.
        test_accuracy: on the whole test set, in percent; in float32, with the TF32 that PyTorch allows convolutions.
        path: the checkpoint, which :func:`pnml.bench.zoo.load` reads.
    """

    network: zoo.Network
    test_accuracy: float
    path: Path


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
    save_every: float = 30.0,
) -> TrainedResult:
    """Train a network, test it, and write it to ``out`` with its recipe and its test accuracy.

    A training that was interrupted goes on when it is called again with the same arguments, and ends with the same
    weights as if nothing had happened; one that was finished is read from ``out``. On a GPU it computes in bfloat16,
    compiled, on the CPU in float32. All images are kept on the device.

    Args:
        recipe: of :func:`pnml.bench.training.recipe`.
        train_set: images with labels.
        test_set: images with labels; they have no influence on the weights.
        out: the ``.safetensors`` file to write. What is there so far is kept beside it, in ``*.partial.safetensors``.
        device: "cpu", "cuda", ...; by default a GPU if there is one.
        seed: of the first weights, the order and moves of the images, dropout, and the outliers.
        start: a trained network to tune, left as it is; fresh weights by default.
        outliers: for recipes with a penalty: sets of the same image size, or "transformed" for training images with
            shuffled patches, noise, inverted or other colours, or turned.
        report: is told where the training stands, after every batch; see :func:`pnml.bench.training.log_epochs`.
        save_every: seconds between two savings of what is there so far; they come at the end of an epoch.

    Raises:
        ValueError: the arguments do not fit together, a file in the way is from another training, or the loss is no
            longer finite.
    """
    out, device = Path(out), torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    check(recipe, out, seed, start, outliers)
    settings = describe(recipe, train_set, test_set, seed=seed, start=start, outliers=outliers)
    unfinished = partial_path(out)
    if out.exists():
        metadata = read_metadata(out)
        refuse_others(out, metadata, settings)
        unfinished.unlink(missing_ok=True)
        return TrainedResult(zoo.load(out), float(metadata["test_accuracy"]), out)
    out.parent.mkdir(parents=True, exist_ok=True)

    train_data, test_data = (to_labelled(one, recipe.num_classes, device) for one in (train_set, test_set))
    sources = [None if isinstance(one, str) else to_device(one, device) for one in outliers]
    mixture = Outliers(sources, train_data.images, digits=not recipe.flip) if sources else None
    with _reproducible(device):
        torch.manual_seed(_mix(seed, 0))
        network = zoo.create(recipe.model, recipe.num_classes) if start is None else copy.deepcopy(start)
        network.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in the stubs
        before = math.nan if mixture is None else accuracy(network, train_data)
        trainer = Trainer(recipe, network, train_data, mixture, train_accuracy=before / 100)
        done = read_partial(unfinished, network, trainer.optimizer, settings=settings) if unfinished.exists() else 0

        def save(epoch: int) -> None:
            write_partial(unfinished, network, trainer.optimizer, epoch=epoch, settings=settings)

        _run(trainer, test_data, seed=seed, done=done, report=report, save=save, save_every=save_every)
        test_accuracy = accuracy(network, test_data)
    network.to(device="cpu", memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    outcome = {
        "test_accuracy": str(test_accuracy),
        "date": datetime.now(timezone.utc).date().isoformat(),
        "device": device.type,
        "torch": torch.__version__,
    }
    zoo.save(network, out, extra=settings | outcome)
    unfinished.unlink(missing_ok=True)
    return TrainedResult(network, test_accuracy, out)


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
    """Make the passes that are not ``done``."""
    epochs = trainer.recipe.epochs
    now = Progress(done + 1, epochs, 0, trainer.steps)
    report(now)
    saved = time.monotonic()
    for epoch in range(done + 1, epochs + 1):
        began = time.monotonic()
        loss, right = trainer.run(epoch, _mix(seed, epoch), partial(_report_step, report, now._replace(epoch=epoch)))
        if not math.isfinite(loss):
            raise ValueError(f"the loss is {loss} after epoch {epoch}: lr={trainer.recipe.lr} is too high, lower it")
        tested = now.test_accuracy
        if epoch % _TEST_EVERY == 0:
            tested = accuracy(trainer.network, test_data, mixed=trainer.mixed)
        if epoch < epochs and time.monotonic() - saved >= save_every:
            save(epoch)
            saved = time.monotonic()
        left = (epochs - epoch) * (time.monotonic() - began)
        now = Progress(epoch, epochs, trainer.steps, trainer.steps, loss, right, tested, left)
        report(now)


def _report_step(report: Callable[[Progress], object], now: Progress, step: int) -> None:
    """Report after a batch; after the last one the pass itself is reported, with its values."""
    if step < now.steps:
        report(now._replace(step=step))


@contextmanager
def _reproducible(device: torch.device) -> Iterator[None]:
    """Let cuDNN choose its algorithms the same way every time, and leave the random state of the caller alone."""
    cudnn = torch.backends.cudnn
    flags = cudnn.benchmark, cudnn.deterministic
    cudnn.benchmark, cudnn.deterministic = False, True
    try:
        with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
            yield
    finally:
        cudnn.benchmark, cudnn.deterministic = flags


def _mix(seed: int, epoch: int) -> int:
    """A seed for one epoch; 0 is for the first weights."""
    return int(np.random.SeedSequence((seed, epoch)).generate_state(1)[0])
