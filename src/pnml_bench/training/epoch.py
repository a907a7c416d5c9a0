"""One epoch of training; on an NVIDIA GPU its steps are recorded once and then replayed by one call each.

A step of a network for small images is hundreds of short operations, and asking for them one by one takes the host
several times longer than they take the GPU. A CUDA graph asks for all of them at once. It reads its batch from memory
of its own, and it must not be recorded before everything that is made in a first step is there: compiled code,
gradients, the optimizer's state. So some steps are done first, and undone.
"""

from __future__ import annotations

import logging
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pnml_bench.training.augment import draw_augmentation, shift_and_flip

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from pnml_bench.training.augment import Labelled
    from pnml_bench.training.outliers import Outliers
    from pnml_bench.training.recipes import Recipe
    from pnml_bench.zoo import Network

    Step = Callable[..., None]


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


_STEPS_BEFORE = 3
_LOG = logging.getLogger(__name__)


def record_step(
    step: Step,
    batch: tuple[Tensor, ...],
    changed: Callable[[], Iterable[Tensor]],
    *,
    capture: Callable[[Step, tuple[Tensor, ...]], Callable[[], None]] | None = None,
) -> Step:
    """Return a function that does what ``step`` does, on batches with the shapes of ``batch``.

    Nothing is changed by the recording. Where it fails, such as for lack of memory, ``step`` itself is returned.

    Args:
        step: called with the tensors of a batch; must look at no value.
        batch: one batch.
        changed: lists all tensors that a step changes. Those that only the first step makes must start from 0.
        capture: tries a step and returns what replays it; by default a CUDA graph.
    """
    given = tuple(one.clone() for one in batch)
    before = {tensor.data_ptr(): (tensor, tensor.clone()) for tensor in changed()}
    try:
        replay = (capture or capture_cuda_graph)(step, given)
    except RuntimeError as error:
        _LOG.warning("training without a CUDA graph, several times slower: %s", error)
        replay = None
    with torch.no_grad():
        for tensor in changed():
            if tensor.data_ptr() not in before:
                tensor.zero_()
        for tensor, value in before.values():
            tensor.copy_(value)
    if replay is None:
        return step

    def replayed(*batch: Tensor) -> None:
        for own, one in zip(given, batch, strict=True):
            own.copy_(one)
        replay()

    return replayed


def capture_cuda_graph(step: Step, given: tuple[Tensor, ...]) -> Callable[[], None]:
    """Do some steps, record one more, and return what replays it."""
    current, aside = torch.cuda.current_stream(), torch.cuda.Stream()  # type: ignore[no-untyped-call]
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        for _ in range(_STEPS_BEFORE):
            step(*given)
    current.wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step(*given)
    return graph.replay
