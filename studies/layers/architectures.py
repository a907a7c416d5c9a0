"""Image networks of many architectures, and how they are trained: what ``networks.py`` chooses from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, scaled_dot_product_attention

from pnml_bench.data import SETS, load
from pnml_bench.data.selection import Contents
from pnml_bench.data.source import Source
from pnml_bench.training import DATASETS
from pnml_bench.training.augment import draw_augmentation, shift_and_flip
from pnml_bench.zoo import Network
from pnml_bench.zoo.wide_resnet import WideResNet

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml_bench.data.selection import Selection
    from pnml_bench.training.augment import Labelled
    from pnml_bench.zoo.network import Tap


class Other(Network):
    """Any ``body`` that makes embeddings (N, width) of images, and a linear head."""

    def __init__(self, body: nn.Module, width: int, num_classes: int) -> None:
        super().__init__()
        self.body = body
        self.fc = nn.Linear(width, num_classes)
        self.initialise()

    def embed(self, x: Tensor, tap: Tap) -> Tensor:
        embeddings: Tensor = self.body(x)
        tap(embeddings)
        return embeddings


class Beside(nn.Module):
    """``x + inner(x)``, or ``shortcut(x) + inner(x)``."""

    def __init__(self, *inner: nn.Module, shortcut: nn.Module | None = None) -> None:
        super().__init__()
        self.inner = nn.Sequential(*inner)
        self.shortcut = nn.Identity() if shortcut is None else shortcut

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.shortcut(x) + self.inner(x)
        return out


class Mean(nn.Module):
    """The mean over ``dims``."""

    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=self.dims)


class Attention(nn.Module):
    """Self-attention of tokens (N, T, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed: Tensor = self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return mixed


class Tokens(nn.Module):
    """Patches of 4×4 pixels as tokens (N, 64, width), each with what is learnt of its place.

    ``patch`` makes (N, width, 8, 8) of the images, by default with one convolution.
    """

    def __init__(self, width: int, patch: nn.Module | None = None) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4) if patch is None else patch
        self.place = nn.Parameter(0.02 * torch.randn(1, 64, width))

    def forward(self, x: Tensor) -> Tensor:
        tokens: Tensor = self.patch(x).flatten(2).transpose(1, 2) + self.place
        return tokens


def mlp(width: int, inside: int) -> tuple[nn.Module, ...]:
    return nn.Linear(width, inside), nn.GELU(), nn.Linear(inside, width)


def convolution(inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """A convolution that keeps the resolution, or divides it by ``stride``, and a batch norm."""
    return [
        nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]


def vit(width: int = 192, depth: int = 9, heads: int = 3) -> nn.Module:
    """A vision transformer: mean of the tokens, then LayerNorm, so that all embeddings are about equally long."""
    layers: list[nn.Module] = [Tokens(width)]
    for _ in range(depth):
        layers.append(Beside(nn.LayerNorm(width), Attention(width, heads)))
        layers.append(Beside(nn.LayerNorm(width), *mlp(width, 4 * width)))
    return nn.Sequential(*layers, Mean(1), nn.LayerNorm(width))


def vgg(widths: tuple[int, ...] = (64, 128, 256, 512, 512)) -> nn.Module:
    """VGG-13: no shortcuts, no average; a fully connected ReLU layer with dropout makes the embeddings."""
    layers: list[nn.Module] = []
    inputs = 3
    for width in widths:
        for _ in range(2):
            layers += [*convolution(inputs, width, 3), nn.ReLU(inplace=True)]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(inputs, inputs), nn.ReLU(inplace=True), nn.Dropout(0.5))


def convmixer(width: int = 256, depth: int = 8, kernel: int = 5) -> nn.Module:
    """Depthwise and pointwise convolutions of patches, GELU before each batch norm: embeddings of either sign."""

    def after(conv: nn.Conv2d) -> tuple[nn.Module, ...]:
        return conv, nn.GELU(), nn.BatchNorm2d(width)

    layers = [*after(nn.Conv2d(3, width, 2, stride=2))]
    for _ in range(depth):
        layers.append(Beside(*after(nn.Conv2d(width, width, kernel, padding=kernel // 2, groups=width))))
        layers.extend(after(nn.Conv2d(width, width, 1)))
    return nn.Sequential(*layers, Mean(2, 3))


def mobile() -> nn.Module:
    """Inverted residuals with SiLU, then 1280 channels at once: embeddings much wider than what they are made of."""
    layers = [*convolution(3, 32, 3), nn.SiLU()]
    inputs = 32
    for expand, outputs, depth, first_stride in (
        (1, 24, 1, 1),
        (4, 40, 2, 2),
        (4, 80, 3, 2),
        (6, 112, 3, 1),
        (6, 160, 2, 2),
    ):
        for number in range(depth):
            stride, inside = first_stride if number == 0 else 1, expand * inputs
            block = [*convolution(inputs, inside), nn.SiLU()]
            block += [*convolution(inside, inside, 3, stride, inside), nn.SiLU(), *convolution(inside, outputs)]
            layers.append(Beside(*block) if stride == 1 and inputs == outputs else nn.Sequential(*block))
            inputs = outputs
    return nn.Sequential(*layers, *convolution(inputs, 1280), nn.SiLU(), Mean(2, 3), nn.Dropout(0.2))


class Along(nn.Module):
    """``inner`` along axis 1, as if it were the last: across the tokens (N, T, M), or the channels (N, C, H, W)."""

    def __init__(self, *inner: nn.Module) -> None:
        super().__init__()
        self.inner = nn.Sequential(*inner)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.inner(x.movedim(1, -1)).movedim(-1, 1)
        return out


class ClassToken(nn.Module):
    """One more token, the same for all images, before the others (N, T, width)."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.token = nn.Parameter(0.02 * torch.randn(1, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([self.token.expand(len(x), -1, -1), x], dim=1)


class First(nn.Module):
    """The first token (N, width)."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, 0]


class Excite(nn.Module):
    """Channels (N, width, H, W), each times a number in (0, 1) that follows from the means of all."""

    def __init__(self, width: int) -> None:
        super().__init__()
        squeezed = nn.Conv2d(width, width // 8, 1), nn.ReLU(inplace=True), nn.Conv2d(width // 8, width, 1)
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), *squeezed, nn.Sigmoid())

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = x * self.gate(x)
        return out


def plain() -> nn.Module:
    """Convolutions without any norm or shortcut; a fully connected tanh layer with dropout makes the embeddings."""
    layers: list[nn.Module] = []
    inputs = 3
    for width in (64, 128, 256):
        for _ in range(2):
            layers += [nn.Conv2d(inputs, width, 3, padding=1), nn.GELU()]
            inputs = width
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(256 * 4 * 4, 256), nn.Tanh(), nn.Dropout(0.5))


def mixer(width: int = 256, depth: int = 8) -> nn.Module:
    """MLP-Mixer: LayerNorm of each token, then their mean."""
    layers: list[nn.Module] = [Tokens(width)]
    for _ in range(depth):
        layers.append(Beside(nn.LayerNorm(width), Along(*mlp(64, 128))))
        layers.append(Beside(nn.LayerNorm(width), *mlp(width, 4 * width)))
    return nn.Sequential(*layers, nn.LayerNorm(width), Mean(1))


def convnext() -> nn.Module:
    """ConvNeXt: depthwise 7×7 convolutions and LayerNorm, the last of them after the mean."""
    layers: list[nn.Module] = []
    inputs = 3
    for width in (96, 192, 384):
        layers.append(nn.Conv2d(inputs, width, 2, stride=2))
        for _ in range(3):
            depthwise = nn.Conv2d(width, width, 7, padding=3, groups=width)
            layers.append(Beside(depthwise, Along(nn.LayerNorm(width), *mlp(width, 4 * width))))
        layers.append(Along(nn.LayerNorm(width)))
        inputs = width
    return nn.Sequential(*layers, Mean(2, 3), nn.LayerNorm(inputs))


def vit_class(width: int = 192, depth: int = 7, heads: int = 3) -> nn.Module:
    """A vision transformer whose class token, after LayerNorm, is the embedding; convolutions make its patches."""
    half = width // 2
    patch = nn.Sequential(nn.Conv2d(3, half, 3, 2, 1), nn.GELU(), nn.Conv2d(half, width, 3, 2, 1))
    layers: list[nn.Module] = [Tokens(width, patch), ClassToken(width)]
    for _ in range(depth):
        layers.append(Beside(nn.LayerNorm(width), Attention(width, heads)))
        layers.append(Beside(nn.LayerNorm(width), *mlp(width, 4 * width)))
    return nn.Sequential(*layers, First(), nn.LayerNorm(width))


def residual(inputs: int, outputs: int, stride: int, *inner: nn.Module) -> list[nn.Module]:
    """``inner`` beside a shortcut, which is a convolution where the shape changes, then ReLU."""
    shortcut = None if inputs == outputs and stride == 1 else nn.Sequential(*convolution(inputs, outputs, 1, stride))
    return [Beside(*inner, shortcut=shortcut), nn.ReLU(inplace=True)]


def squeeze_excite() -> nn.Module:
    """A ResNet of 14 layers with squeeze and excitation at the end of each block."""
    layers: list[nn.Module] = [*convolution(3, 64, 3), nn.ReLU(inplace=True)]
    inputs = 64
    for width in (64, 128, 256):
        for number in range(2):
            stride = 2 if number == 0 and width > inputs else 1
            inner = [*convolution(inputs, width, 3, stride), nn.ReLU(inplace=True), *convolution(width, width, 3)]
            layers += residual(inputs, width, stride, *inner, Excite(width))
            inputs = width
    return nn.Sequential(*layers, Mean(2, 3))


def regnet() -> nn.Module:
    """Grouped convolutions, 32 channels a group; a linear layer leaves 64 numbers of either sign."""
    layers: list[nn.Module] = [*convolution(3, 32, 3), nn.ReLU(inplace=True)]
    inputs = 32
    for width, depth, first_stride in ((64, 1, 1), (128, 2, 2), (256, 4, 2), (512, 2, 2)):
        for number in range(depth):
            stride = first_stride if number == 0 else 1
            inner = [*convolution(inputs, width), nn.ReLU(inplace=True)]
            inner += [*convolution(width, width, 3, stride, width // 32), nn.ReLU(inplace=True)]
            layers += residual(inputs, width, stride, *inner, *convolution(width, width))
            inputs = width
    return nn.Sequential(*layers, Mean(2, 3), nn.Linear(inputs, 64))


def resnet9() -> nn.Module:
    """Eight convolutions with leaky ReLU, two shortcuts, and the maximum over all places instead of the mean."""

    def step(inputs: int, outputs: int) -> list[nn.Module]:
        return [*convolution(inputs, outputs, 3), nn.LeakyReLU(0.1, inplace=True)]

    layers: list[nn.Module] = [*step(3, 64), *step(64, 128), nn.MaxPool2d(2), Beside(*step(128, 128), *step(128, 128))]
    layers += [*step(128, 256), nn.MaxPool2d(2), *step(256, 512), nn.MaxPool2d(2)]
    layers.append(Beside(*step(512, 512), *step(512, 512)))
    return nn.Sequential(*layers, nn.AdaptiveMaxPool2d(1), nn.Flatten())


BODIES: dict[str, tuple[Callable[[], nn.Module], int]] = {
    "vit": (vit, 192),
    "vgg": (vgg, 512),
    "convmixer": (convmixer, 256),
    "mobile": (mobile, 1280),
    "plain": (plain, 256),
    "mixer": (mixer, 256),
    "convnext": (convnext, 384),
    "vit-class": (vit_class, 192),
    "seresnet-focal": (squeeze_excite, 256),
    "regnet": (regnet, 64),
    "resnet9": (resnet9, 512),
}


def half(name: str, remainder: int) -> Source:
    """Describe the classes with this remainder when halved, numbered anew from 0."""

    def generate(selection: Selection) -> Contents:
        whole = load("cifar10", split=selection.split)
        if whole.labels is None:
            raise ValueError("the images of CIFAR-10 have no labels: their classes cannot be told apart")
        rows = np.flatnonzero(whole.labels % 2 == remainder)
        chosen = rows[selection.rows(len(rows))]
        return Contents(whole.images[chosen], whole.labels[chosen] // 2, len(rows))

    return Source(
        name, f"CIFAR-10, every second class from {remainder}", {"train": 25_000, "test": 5_000}, generate=generate
    )


SETS |= {"cifar10-even": half("cifar10-even", 0), "cifar10-odd": half("cifar10-odd", 1)}
DATASETS["cifar10-even"] = 5


BATCH = 512
WARM = 2  # epochs in which the learning rate rises; how long the second takes says how many there is time for


@dataclass(frozen=True)
class Plan:
    """How to train, by SGD with Nesterov momentum or by AdamW.

    ``lr`` is for batches of 512, less for smaller ones; ``cutout`` is in pixels; ``mixup`` and ``cutmix`` are the
    parameter of a Beta; ``focal`` is the exponent of the focal loss; ``still`` images are neither shifted nor flipped.
    """

    epochs: int
    lr: float
    weight_decay: float = 5e-4
    adam: bool = False
    cutout: int = 0
    mixup: float = 0.0
    smoothing: float = 0.0
    cutmix: float = 0.0
    focal: float = 0.0
    still: bool = False


ZOO: dict[str, Callable[[int], Network]] = {
    "wrn16-cutmix": lambda classes: WideResNet(classes, depth=2, widen=4, dropout=0.0),
}


def rate(plan: Plan, epoch: float, epochs: int) -> float:
    """Return the learning rate after ``epoch`` passes: a linear rise, then a cosine to 0."""
    warm = min(WARM, epochs / 2)
    if epoch < warm:
        return plan.lr * (epoch + 0.02) / (warm + 0.02)
    return plan.lr * 0.5 * (1 + math.cos(math.pi * (epoch - warm) / (epochs - warm)))


def cut_out(x: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Return images (N, 3, H, W) with a square of 0, the mean colour, in each."""
    at = torch.rand((2, len(x), 1), generator=generator, device=x.device) * x.shape[-1]
    down, right = (torch.arange(x.shape[-1], device=x.device) - at).abs() < side / 2
    return x.masked_fill((down[:, :, None] & right[:, None, :])[:, None], 0.0)


def cut_mix(x: Tensor, share: float, draw: np.random.Generator) -> tuple[Tensor, float]:
    """Return images (N, 3, H, W) with a square of another image in each, so that about ``share`` of it is left.

    The share that is left is returned too: it is larger where the square is partly outside.
    """
    side = x.shape[-1]
    middle, half = draw.uniform(0, side, 2), side * math.sqrt(1 - share) / 2
    (top, left), (bottom, right) = (
        np.clip(np.rint(edge), 0, side).astype(int) for edge in (middle - half, middle + half)
    )
    x, others = x.clone(), x.flip(0)  # the order is random already
    x[:, :, top:bottom, left:right] = others[:, :, top:bottom, left:right]
    return x, 1 - float((bottom - top) * (right - left)) / side**2


class Training:
    """A network, its optimizer and its images on one device."""

    def __init__(
        self,
        network: Network,
        data: Labelled,
        plan: Plan,
        batch_size: int,
        *,
        flip: bool,
        compiled: bool,
        seed: int = 0,
    ) -> None:
        self.network, self.data, self.plan, self.flip = network, data, plan, flip
        self.device = data.labels.device
        self.batch_size = min(batch_size, len(data.labels))
        self.steps = len(data.labels) // self.batch_size
        self.generator = torch.Generator(self.device).manual_seed(seed)
        self.shares = np.random.default_rng(seed)
        on_gpu = self.device.type == "cuda"
        self.optimizer: torch.optim.Optimizer
        if plan.adam:
            self.optimizer = torch.optim.AdamW(network.parameters(), weight_decay=plan.weight_decay, fused=on_gpu)
        else:
            self.optimizer = torch.optim.SGD(
                network.parameters(), lr=0.1, momentum=0.9, weight_decay=plan.weight_decay, nesterov=True, fused=on_gpu
            )
        self.answer = torch.compile(network) if compiled else network

    def run(self, name: str, seconds: float) -> None:
        """Make all passes, or as many as take about ``seconds``."""
        epochs, began = self.plan.epochs, perf_counter()
        epoch = 0
        while epoch < epochs:
            start = perf_counter()
            loss = self._pass(epoch, epochs)
            if not math.isfinite(loss):
                raise ArithmeticError(f"the loss of {name} is {loss} after {epoch + 1} passes: lower lr in its plan")
            epoch += 1
            if epoch == WARM:
                epochs = max(WARM + 1, min(epochs, int(seconds / (perf_counter() - start))))
            if epoch <= WARM or epoch % 5 == 0 or epoch == epochs:
                passed = perf_counter() - began
                print(f"{name}: epoch {epoch}/{epochs}, loss {loss:.3f}, {passed:.1f} s", flush=True)

    def _pass(self, epoch: int, epochs: int) -> float:
        total = self.steps * self.batch_size
        rows = torch.randperm(len(self.data.labels), generator=self.generator, device=self.device)[:total]
        if self.plan.still:
            images = self.data.images[rows]
        else:
            augmentation = draw_augmentation(total, flip=self.flip, generator=self.generator)
            images = shift_and_flip(self.data.images, rows, augmentation)
        pixels = torch.split(images.permute(0, 3, 1, 2), self.batch_size)
        batches = zip(pixels, torch.split(self.data.labels[rows], self.batch_size), strict=True)
        loss_sum = torch.zeros((), device=self.device)
        self.network.train()
        for step, (x, labels) in enumerate(batches):
            for group in self.optimizer.param_groups:
                group["lr"] = self.batch_size / BATCH * rate(self.plan, epoch + step / self.steps, epochs)
            loss = self._loss(self.network.normalise(x), labels)
            self.optimizer.zero_grad(set_to_none=True)
            torch.autograd.backward(loss)
            nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
            self.optimizer.step()
            loss_sum += loss.detach()
        return loss_sum.item() / self.steps

    def _loss(self, x: Tensor, labels: Tensor) -> Tensor:
        if self.plan.cutout:
            x = cut_out(x, self.plan.cutout, self.generator)
        share = 1.0
        if self.plan.mixup:
            share = float(self.shares.beta(self.plan.mixup, self.plan.mixup))
            x = share * x + (1 - share) * x.flip(0)  # the order is random already
        elif self.plan.cutmix:
            x, share = cut_mix(x, float(self.shares.beta(self.plan.cutmix, self.plan.cutmix)), self.shares)
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.device.type == "cuda"):
            logits = self.answer(x).float()
        loss = self._loss_of(logits, labels)
        if share < 1:
            loss = share * loss + (1 - share) * self._loss_of(logits, labels.flip(0))
        return loss

    def _loss_of(self, logits: Tensor, labels: Tensor) -> Tensor:
        losses = cross_entropy(logits, labels, label_smoothing=self.plan.smoothing, reduction="none")
        if self.plan.focal:
            losses = losses * (-torch.expm1(-losses)) ** self.plan.focal
        return losses.mean()


def create(model: str, num_classes: int) -> Network:
    if model in ZOO:
        return ZOO[model](num_classes)
    body, width = BODIES[model]
    return Other(body(), width, num_classes)
