"""One epoch of training."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pnml_bench.training.augment import draw_augmentation, shift_and_flip
from pnml_bench.training.recorded_step import record_step

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pnml_bench.training.measure import Labelled
    from pnml_bench.training.outliers import Outliers
    from pnml_bench.training.recipes import Recipe
    from pnml_bench.zoo import Network


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
        self.optimizer = make_optimizer(recipe, network, on_gpu=self.mixed_precision)
        self._loss_sum = torch.zeros((), device=self.device)
        self._correct = torch.zeros((), dtype=torch.int64, device=self.device)
        self._replay: Callable[..., None] | None = None
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
        batches = self._draw_batches(torch.Generator(self.device).manual_seed(seed))
        done, steps = (epoch - 1) * self.steps, self.recipe.epochs * self.steps
        if self._replay is None:
            self._replay = record_step(self._step, batches[0], self._changed) if self.mixed_precision else self._step
        torch.manual_seed(seed)  # for dropout
        self._loss_sum.zero_()
        self._correct.zero_()
        for step, batch in enumerate(batches):
            self._set_lr(self.recipe.lr_at(done + step, steps))
            self._replay(*batch)
            on_step(step + 1)
        seen = self.steps * self.batch_size
        return EpochResult(self._loss_sum.item() / self.steps, 100 * self._correct.item() / seen)

    def _step(self, images: Tensor, labels: Tensor, outliers: Tensor | None = None) -> None:
        """Change the weights once, and count the loss and the images that are classified correctly."""
        loss, logits = self._loss(images, labels, outliers)
        self.optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        self.optimizer.step()
        self._loss_sum += loss.detach()
        self._correct += (logits.argmax(dim=1) == labels).sum()

    def _changed(self) -> Iterator[Tensor]:
        """List all tensors that a step changes."""
        yield from self.network.state_dict().values()
        yield from (self._loss_sum, self._correct)
        for state in self.optimizer.state.values():
            yield from state.values()

    def _set_lr(self, lr: float) -> None:
        """Set the learning rate: on a GPU in memory, where a recorded step reads it."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(lr)
            else:
                group["lr"] = lr

    def _draw_batches(self, generator: torch.Generator) -> list[tuple[Tensor, ...]]:
        """Return the batches of an epoch, shuffled and augmented: images, labels and, if there are any, outliers."""
        total = self.steps * self.batch_size
        rows = torch.randperm(len(self.data.labels), generator=generator, device=self.device)[:total]
        augmentation = draw_augmentation(
            total, max_shift=self.recipe.max_shift, flip=self.recipe.flip, generator=generator
        )
        images = shift_and_flip(self.data.images, rows, augmentation, black=self.recipe.black_border)
        images = images.permute(0, 3, 1, 2)
        parts = [torch.split(images, self.batch_size), torch.split(self.data.labels[rows], self.batch_size)]
        if self.outliers is not None:
            count = self.batch_size * self.recipe.outliers_per_image
            outliers = self.outliers.draw(self.steps * count, generator).permute(0, 3, 1, 2)
            parts.append(torch.split(outliers, count))
        return list(zip(*parts, strict=True))

    def _loss(self, images: Tensor, labels: Tensor, outliers: Tensor | None) -> tuple[Tensor, Tensor]:
        """Compute the loss of a batch, in float32, and the logits of its training images."""
        batch = images if outliers is None else torch.cat((images, outliers))
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.mixed_precision, cache_enabled=False):
            logits = self._forward(batch).float()
        inlier_logits, outlier_logits = logits[: len(labels)], logits[len(labels) :]
        loss = cross_entropy(inlier_logits, labels, label_smoothing=self.recipe.label_smoothing)
        if self.recipe.penalty is not None:
            loss = loss + self.recipe.penalty(inlier_logits, outlier_logits, self.train_accuracy)
        return loss, inlier_logits


def make_optimizer(recipe: Recipe, network: Network, *, on_gpu: bool) -> torch.optim.Optimizer:
    """Return the optimizer of a recipe for all parameters of a network; on a GPU one whose steps can be recorded."""
    parameters = list(network.parameters())
    lr = torch.tensor(recipe.lr, device=parameters[0].device) if on_gpu else recipe.lr
    if recipe.optimizer == "adamw":
        return torch.optim.AdamW(parameters, lr=lr, weight_decay=recipe.weight_decay, fused=on_gpu, capturable=on_gpu)
    return torch.optim.SGD(
        parameters, lr=lr, momentum=recipe.momentum, weight_decay=recipe.weight_decay, nesterov=True, fused=on_gpu
    )
