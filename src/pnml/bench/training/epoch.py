"""One pass over the training images."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pnml.bench.training.augment import draw_moves, shift_and_flip

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.bench.training.measure import Labelled
    from pnml.bench.training.outliers import Outliers
    from pnml.bench.training.recipes import Recipe
    from pnml.bench.zoo import Network


class Outcome(NamedTuple):
    """The mean loss of a pass, and the share of its images that were classified rightly, in percent."""

    loss: float
    accuracy: float


class Trainer:
    """A network, its optimizer and its images, all on one device.

    Args:
        recipe: how to train.
        network: what to train.
        data: what to train on; sets smaller than a batch make one batch.
        outliers: for recipes with a penalty.
        train_accuracy: of the network before training, between 0 and 1, for penalties that refer to it.
    """

    def __init__(
        self, recipe: Recipe, network: Network, data: Labelled, outliers: Outliers | None, *, train_accuracy: float
    ) -> None:
        self.recipe = recipe
        self.network = network
        self.data = data
        self.outliers = outliers
        self.train_accuracy = train_accuracy
        self.device = data.labels.device
        self.batch_size = min(recipe.batch_size, len(data.labels))
        self.steps = len(data.labels) // self.batch_size
        self.mixed = self.device.type == "cuda"  # bfloat16 where autocast allows it
        self.optimizer = torch.optim.SGD(
            network.parameters(),
            lr=recipe.lr,
            momentum=recipe.momentum,
            weight_decay=recipe.weight_decay,
            nesterov=True,
            fused=self.mixed,
        )
        self._from_bytes: Callable[[Tensor], Tensor] = nn.Sequential(network.normalise, network)
        if self.mixed and find_spec("triton") is not None:
            torch.compiler.reset()  # networks that were compiled before count towards PyTorch's limit
            self._from_bytes = torch.compile(self._from_bytes)

    def run(self, epoch: int, seed: int, on_step: Callable[[int], None]) -> Outcome:
        """Make the pass ``epoch`` = 1, 2, ...; everything random in it follows from ``seed``.

        ``on_step`` is called with 1, 2, ... after each batch. The host waits for the device only at the end.
        """
        self.network.train()
        torch.manual_seed(seed)  # dropout
        images, labels, strangers = self._draw(torch.Generator(self.device).manual_seed(seed))
        loss_sum = torch.zeros((), device=self.device)
        right = torch.zeros((), dtype=torch.int64, device=self.device)
        done, steps = (epoch - 1) * self.steps, self.recipe.epochs * self.steps
        for step in range(self.steps):
            for group in self.optimizer.param_groups:
                group["lr"] = self.recipe.lr_at(done + step, steps)
            loss, logits = self._loss(images[step], labels[step], None if strangers is None else strangers[step])
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            self.optimizer.step()
            loss_sum += loss.detach()
            right += (logits.argmax(dim=1) == labels[step]).sum()
            on_step(step + 1)
        return Outcome(loss_sum.item() / self.steps, 100 * right.item() / (self.steps * self.batch_size))

    def _draw(
        self, generator: torch.Generator
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...] | None]:
        """Shuffle and move the images of a whole pass, and cut them into batches."""
        total = self.steps * self.batch_size
        rows = torch.randperm(len(self.data.labels), generator=generator, device=self.device)[:total]
        moves = draw_moves(total, flip=self.recipe.flip, generator=generator)
        images = shift_and_flip(self.data.images, rows, moves).permute(0, 3, 1, 2)
        labels = self.data.labels[rows]
        strangers = None
        if self.outliers is not None:
            each = self.batch_size * self.recipe.outliers_per_image
            strangers = torch.split(self.outliers.draw(self.steps * each, generator).permute(0, 3, 1, 2), each)
        return torch.split(images, self.batch_size), torch.split(labels, self.batch_size), strangers

    def _loss(self, images: Tensor, labels: Tensor, strangers: Tensor | None) -> tuple[Tensor, Tensor]:
        """The loss of a batch, in float32, and the logits of its training images."""
        together = images if strangers is None else torch.cat((images, strangers))
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.mixed):
            logits = self._from_bytes(together).float()
        inside, outside = logits[: len(labels)], logits[len(labels) :]
        loss = cross_entropy(inside, labels, label_smoothing=self.recipe.label_smoothing)
        if self.recipe.penalty is not None:
            loss = loss + self.recipe.penalty(inside, outside, self.train_accuracy)
        return loss, inside
