"""Train networks that had no part in choosing the scale, and write their embeddings as ``embeddings.py`` does.

``python research/other_networks.py --networks vit_cifar10,vgg_svhn,mobile_cifar100 --out embeddings``

A vision transformer (LayerNorm), a VGG (fully connected, dropout), a ConvMixer (GELU, either sign), inverted residuals
(SiLU, 1280 wide), and ResNet-18 with mixup or with smoothed labels, whose confidence is unlike that of other networks.
Training is bfloat16 on a GPU; embeddings are float32 throughout. A network that fails does not stop the others.
"""

from __future__ import annotations

import argparse
import math
import traceback
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np
import torch
from embeddings import write
from other_bodies import BODIES, Other
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pnml.bench.data import load
from pnml.bench.training import DATASETS
from pnml.bench.training.augment import draw_augmentation, shift_and_flip
from pnml.bench.training.measure import Labelled, to_labelled
from pnml.bench.zoo.resnet_cifar import ResNetCifar

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml.bench.zoo import Network

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


PLANS = {
    "vit": Plan(40, 1e-3, weight_decay=0.05, adam=True, cutout=8),
    "vgg": Plan(30, 0.1),
    "convmixer": Plan(25, 0.01, weight_decay=0.01, adam=True),
    "mobile": Plan(30, 0.2),
    "resnet18-mixup": Plan(25, 0.4, mixup=1.0),
    "resnet18-smooth": Plan(20, 0.4, smoothing=0.1),
}
NETWORKS = {f"{model}_{ind}": plan for ind in ("cifar10", "cifar100") for model, plan in PLANS.items()}
NETWORKS["vgg_svhn"] = PLANS["vgg"]


def create(model: str, num_classes: int) -> Network:
    if model.startswith("resnet18"):
        return ResNetCifar(num_classes, blocks=(2, 2, 2, 2))
    body, width = BODIES[model]
    return Other(body(), width, num_classes)


def rate(plan: Plan, epoch: float, epochs: int) -> float:
    """Give the learning rate after ``epoch`` passes: up in a line, down in a cosine."""
    warm = min(WARM, epochs / 2)
    if epoch < warm:
        return plan.lr * (epoch + 0.02) / (warm + 0.02)
    return plan.lr * 0.5 * (1 + math.cos(math.pi * (epoch - warm) / (epochs - warm)))


def cut_out(x: Tensor, side: int, generator: torch.Generator) -> Tensor:
    """Put 0, the mean colour, on a square of each image (N, 3, H, W)."""
    at = torch.rand((2, len(x), 1), generator=generator, device=x.device) * x.shape[-1]
    down, right = (torch.arange(x.shape[-1], device=x.device) - at).abs() < side / 2
    return x.masked_fill((down[:, :, None] & right[:, None, :])[:, None], 0.0)


def cut_mix(x: Tensor, share: float, draw: np.random.Generator) -> tuple[Tensor, float]:
    """Put a square of another image of the batch into each of (N, 3, H, W), so that about ``share`` of it is left.

    The share that is left comes too: it is more where the square is in part outside.
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
        self, network: Network, data: Labelled, plan: Plan, batch_size: int, *, flip: bool, compiled: bool
    ) -> None:
        self.network, self.data, self.plan, self.flip = network, data, plan, flip
        self.device = data.labels.device
        self.batch_size = min(batch_size, len(data.labels))
        self.steps = len(data.labels) // self.batch_size
        self.generator = torch.Generator(self.device).manual_seed(0)
        self.shares = np.random.default_rng(0)
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


def study(name: str, plan: Plan, create: Callable[[str, int], Network], args: argparse.Namespace) -> None:
    """Train one network and write its file."""
    model, ind = name.split("_")
    plan = plan if args.epochs is None else replace(plan, epochs=args.epochs)
    device = torch.device(args.device)
    torch.manual_seed(0)
    network = create(model, DATASETS[ind])
    network.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in the stubs
    data = to_labelled(load(ind, split="train", limit=args.limit), DATASETS[ind], device)
    training = Training(network, data, plan, args.batch_size, flip=ind != "svhn", compiled=args.compile)
    training.run(name, args.seconds)
    began = perf_counter()
    network.eval().to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    line = write(network, name, ind, args.out / f"{name}.safetensors", args.limit)
    print(f"{name}: {line}; embedded in {perf_counter() - began:.1f} s", flush=True)


def main(about: str, networks: dict[str, Plan], create: Callable[[str, int], Network]) -> None:
    """Train those of ``networks``, each named model_set, that the command line asks for."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", default=",".join(networks), help=f"some of {', '.join(networks)}; by default all")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--epochs", type=int, help="by default each network's own number")
    parser.add_argument("--seconds", type=float, default=45, help="fewer epochs where they would take longer than this")
    parser.add_argument("--batch-size", type=int, default=BATCH)
    parser.add_argument("--compile", action="store_true", help="pays only for trainings of several minutes")
    parser.add_argument("--limit", type=int, help="at most this many images of each set, for a try")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    names = args.networks.split(",")
    if unknown := set(names) - set(networks):
        parser.error(f"there is no {', '.join(sorted(unknown))}: choose from {', '.join(networks)}")
    torch.backends.cudnn.benchmark = True
    failed = []
    for name in names:
        try:
            study(name, networks[name], create, args)
        except Exception:  # noqa: BLE001, PERF203  # whatever it is, the other networks are still to be trained
            traceback.print_exc()
            failed.append(name)
            torch.cuda.empty_cache()
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main(__doc__ or "", NETWORKS, create)
