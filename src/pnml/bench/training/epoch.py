"""One epoch of training."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pnml.bench.training.augment import draw_augmentation, shift_and_flip

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.bench.training.measure import Labelled
    from pnml.bench.training.outliers import Outliers
    from pnml.bench.training.recipes import Recipe
    from pnml.bench.zoo import Network


class EpochResult(NamedTuple):
    """The mean loss of an epoch and the training accuracy in percent."""

    loss: float
    accuracy: float


class Trainer:
    """A network, its optimizer and its images, all on one device.

    Args:
        recipe: the hyperparameters.
        network: the network to train.
        data: the training set; a set smaller than a batch is one batch.
        outliers: for recipes with a penalty.
        train_accuracy: of the network before training, between 0 and 1, for the penalty.
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
        self.mixed_precision = self.device.type == "cuda"
        self.optimizer = make_optimizer(recipe, network, fused=self.mixed_precision)
        self._forward: Callable[[Tensor], Tensor] = nn.Sequential(network.normalise, network)
        self.is_compiled = self.mixed_precision and find_spec("triton") is not None
        if self.is_compiled:
            torch.compiler.reset()  # earlier compiled networks count towards PyTorch's limit
            self._forward = torch.compile(self._forward)

    @property
    def arithmetic(self) -> str:
        """How the network is computed, for the record."""
        kind = "bfloat16 autocast, weights in float32" if self.mixed_precision else "float32"
        return f"{kind}, channels last, {'compiled' if self.is_compiled else 'not compiled'}"

    def run(self, epoch: int, seed: int, on_step: Callable[[int], None]) -> EpochResult:
        """Train for the epoch ``epoch`` = 1, 2, ...; ``seed`` determines everything random in it.

        ``on_step`` is called with 1, 2, ... after each batch. The host synchronises with the device only at the end.
        """
        self.network.train()
        torch.manual_seed(seed)  # for dropout
        images, labels, outliers = self._draw_batches(torch.Generator(self.device).manual_seed(seed))
        loss_sum = torch.zeros((), device=self.device)
        correct = torch.zeros((), dtype=torch.int64, device=self.device)
        done, steps = (epoch - 1) * self.steps, self.recipe.epochs * self.steps
        for step in range(self.steps):
            for group in self.optimizer.param_groups:
                group["lr"] = self.recipe.lr_at(done + step, steps)
            loss, logits = self._loss(images[step], labels[step], None if outliers is None else outliers[step])
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            self.optimizer.step()
            loss_sum += loss.detach()
            correct += (logits.argmax(dim=1) == labels[step]).sum()
            on_step(step + 1)
        return EpochResult(loss_sum.item() / self.steps, 100 * correct.item() / (self.steps * self.batch_size))

    def _draw_batches(
        self, generator: torch.Generator
    ) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...], tuple[Tensor, ...] | None]:
        """Return the batches of an epoch, shuffled and augmented: images, labels and outliers."""
        total = self.steps * self.batch_size
        rows = torch.randperm(len(self.data.labels), generator=generator, device=self.device)[:total]
        augmentation = draw_augmentation(
            total, max_shift=self.recipe.max_shift, flip=self.recipe.flip, generator=generator
        )
        images = shift_and_flip(self.data.images, rows, augmentation, black=self.recipe.black_border)
        images = images.permute(0, 3, 1, 2)
        labels = self.data.labels[rows]
        outliers = None
        if self.outliers is not None:
            count = self.batch_size * self.recipe.outliers_per_image
            outliers = torch.split(self.outliers.draw(self.steps * count, generator).permute(0, 3, 1, 2), count)
        return torch.split(images, self.batch_size), torch.split(labels, self.batch_size), outliers

    def _loss(self, images: Tensor, labels: Tensor, outliers: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute the loss of a batch, in float32, and the logits of its training images."""
        batch = images if outliers is None else torch.cat((images, outliers))
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.mixed_precision):
            logits = self._forward(batch).float()
        inlier_logits, outlier_logits = logits[: len(labels)], logits[len(labels) :]
        loss = cross_entropy(inlier_logits, labels, label_smoothing=self.recipe.label_smoothing)
        if self.recipe.penalty is not None:
            loss = loss + self.recipe.penalty(inlier_logits, outlier_logits, self.train_accuracy)
        return loss, inlier_logits


def make_optimizer(recipe: Recipe, network: Network, *, fused: bool) -> torch.optim.Optimizer:
    """Return the optimizer of a recipe for all parameters of a network."""
    parameters, decay = network.parameters(), recipe.weight_decay
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=recipe.lr, weight_decay=decay, fused=fused)
    return torch.optim.SGD(
        parameters, lr=recipe.lr, momentum=recipe.momentum, weight_decay=decay, nesterov=True, fused=fused
    )
