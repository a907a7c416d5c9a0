"""Train the networks of the study of several layers, three seeds each, and keep their weights.

``python -m studies.layers.networks confirm --out networks --seeds 0,1,2``

``choose`` has the networks on which the form of the deep regret is chosen, ``confirm`` those on which it is tested
(README.md), ``second`` those of its second round. Weights are rounded to float16 and written as safetensors, a few
megabytes each, so that a later default can be scored on the same networks without a GPU. Files that are there already
are left alone.
"""

from __future__ import annotations

import argparse
import traceback
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import conv2d

from pnml.backend.files import atomic_path
from pnml_bench.data import load
from pnml_bench.training import DATASETS
from pnml_bench.training.augment import accuracy, to_labelled
from pnml_bench.zoo.densenet import DenseNet
from pnml_bench.zoo.resnet import ResNetCifar
from pnml_bench.zoo.wide_resnet import WideResNet
from studies.layers.architectures import (
    BATCH,
    BODIES,
    SETS,
    ZOO,
    Attention,
    Beside,
    Mean,
    Plan,
    Tokens,
    Training,
    convolution,
    create,
    mlp,
    vgg,
)

if TYPE_CHECKING:
    from pnml_bench.zoo import Network


class SequencePooling(nn.Module):
    """The mean of tokens (N, T, width) with weights that depend on the tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = (self.weight(x).softmax(dim=1) * x).sum(dim=1)
        return pooled


def compact_transformer(width: int = 192, depth: int = 6, heads: int = 3) -> nn.Module:
    """Two convolutions with pooling make the tokens; their weighted mean is the embedding."""
    patch = nn.Sequential(
        nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(64, width, 3, padding=1), nn.ReLU(),
        nn.MaxPool2d(2),
    )  # fmt: skip
    layers: list[nn.Module] = [Tokens(width, patch)]
    for _ in range(depth):
        layers.append(Beside(nn.LayerNorm(width), Attention(width, heads)))
        layers.append(Beside(nn.LayerNorm(width), *mlp(width, 2 * width)))
    return nn.Sequential(*layers, nn.LayerNorm(width), SequencePooling(width))


class Recurrent(nn.Module):
    """Two bidirectional GRUs over patches in reading order; the mean of the second one's states is the embedding."""

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        stem = nn.Sequential(*convolution(3, 64, 3), nn.ReLU(), *convolution(64, 2 * width, 4, 4), nn.ReLU())
        stem[3].padding = (0, 0)
        self.tokens = Tokens(2 * width, stem)
        self.first = nn.GRU(2 * width, width, batch_first=True, bidirectional=True)
        self.second = nn.GRU(2 * width, width, batch_first=True, bidirectional=True)

    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast(x.device.type, enabled=False):
            tokens = self.tokens(x.float())
            states, _ = self.first(tokens)
            states, _ = self.second(states + tokens)
        return states.mean(dim=1)


class SpatialGating(nn.Module):
    """Half of the channels of tokens (N, T, 2 width), times a linear map of the other half across the tokens."""

    def __init__(self, width: int, tokens: int = 64) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.across = nn.Linear(tokens, tokens)
        nn.init.zeros_(self.across.weight)
        nn.init.ones_(self.across.bias)

    def forward(self, x: Tensor) -> Tensor:
        kept, gate = x.chunk(2, dim=-1)
        out: Tensor = kept * self.across(self.norm(gate).transpose(1, 2)).transpose(1, 2)
        return out


def gated_mlp(width: int = 192, depth: int = 8) -> nn.Module:
    """gMLP: no attention; tokens meet only in the spatial gates."""
    layers: list[nn.Module] = [Tokens(width)]
    for _ in range(depth):
        wide = nn.Linear(width, 4 * width), nn.GELU(), SpatialGating(2 * width), nn.Linear(2 * width, width)
        layers.append(Beside(nn.LayerNorm(width), *wide))
    return nn.Sequential(*layers, nn.LayerNorm(width), Mean(1))


class Branches(nn.Module):
    """Convolutions of sizes 1, 3 and 5 and a pooled branch, joined."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        relu = nn.ReLU(inplace=True)
        self.branches = nn.ModuleList(
            [
                nn.Sequential(*convolution(inputs, width), relu),
                nn.Sequential(*convolution(inputs, width), relu, *convolution(width, width, 3), relu),
                nn.Sequential(*convolution(inputs, width // 2), relu, *convolution(width // 2, width, 5), relu),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), *convolution(inputs, width), relu),
            ]
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([branch(x) for branch in self.branches], dim=1)


def inception() -> nn.Module:
    """Modules of parallel branches, without shortcuts."""
    layers: list[nn.Module] = [*convolution(3, 64, 3), nn.ReLU(inplace=True)]
    inputs = 64
    for width in (24, 40, 64):
        layers += [Branches(inputs, width), Branches(4 * width, width), nn.MaxPool2d(2)]
        inputs = 4 * width
    return nn.Sequential(*layers, Mean(2, 3))


class StandardisedConv(nn.Conv2d):
    """A convolution whose filters have mean 0 and variance 1 / size."""

    def forward(self, x: Tensor) -> Tensor:
        w = self.weight
        w = (w - w.mean(dim=(1, 2, 3), keepdim=True)) / (w.std(dim=(1, 2, 3), keepdim=True) + 1e-5)
        return conv2d(x, w / w[0].numel() ** 0.5, self.bias, self.stride, self.padding)


def no_batch_norm() -> nn.Module:
    """A ResNet with standardised filters, GroupNorm and SiLU."""

    def step(inputs: int, outputs: int, stride: int = 1) -> list[nn.Module]:
        return [nn.GroupNorm(8, inputs), nn.SiLU(), StandardisedConv(inputs, outputs, 3, stride, 1)]

    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, padding=1)]
    inputs = 32
    for width in (64, 128, 256):
        for number in range(2):
            stride = 2 if number == 0 and inputs > 32 else 1
            shortcut = None if number else nn.Conv2d(inputs, width, 1, stride)
            layers.append(Beside(*step(inputs, width, stride), *step(width, width), shortcut=shortcut))
            inputs = width
    return nn.Sequential(*layers, nn.GroupNorm(8, inputs), nn.SiLU(), Mean(2, 3))


BODIES |= {
    "cct": (compact_transformer, 192),
    "gru": (Recurrent, 256),
    "gmlp": (gated_mlp, 192),
    "inception": (inception, 256),
    "groupnorm": (no_batch_norm, 256),
    "narrow-vgg": (partial(vgg, (32, 64, 128, 256, 256)), 256),
}
for _name in ("resnet-smooth", "resnet-mixup", "resnet"):
    ZOO[_name] = lambda classes: ResNetCifar(classes, blocks=(2, 2, 2, 2), width=32)
ZOO["wrn-cutmix"] = ZOO["wrn16-cutmix"]
ZOO["wrn"] = lambda classes: WideResNet(classes, depth=3, widen=3)
ZOO["densenet"] = lambda classes: DenseNet(classes, depth=6, growth=16)

CHOOSE = {
    "convnext_cifar10": Plan(14, 1e-3, weight_decay=0.05, adam=True),
    "plain_cifar10": Plan(18, 1e-3, weight_decay=0.05, adam=True),
    "mixer_cifar100": Plan(18, 1e-3, weight_decay=0.05, adam=True, cutout=8),
    "vit-class_cifar100": Plan(18, 1e-3, weight_decay=0.05, adam=True, cutout=8),
    "narrow-vgg_cifar100": Plan(14, 0.1),
    "resnet-smooth_cifar100": Plan(12, 0.4, smoothing=0.1),
    "wrn-cutmix_cifar100": Plan(14, 0.3, cutmix=1.0),
    "resnet-mixup_cifar10": Plan(12, 0.4, mixup=1.0),
    "regnet_cifar100": Plan(12, 0.2),
    "seresnet-focal_svhn": Plan(12, 0.2, focal=2.0),
}
CONFIRM = {
    "resnet_cifar10": Plan(12, 0.4),
    "wrn_cifar100": Plan(14, 0.3),
    "vit_cifar10": Plan(18, 1e-3, weight_decay=0.05, adam=True, cutout=8),
    "convmixer_cifar100": Plan(12, 0.01, weight_decay=0.01, adam=True),
    "mobile_cifar100": Plan(14, 0.2),
    "resnet9_cifar10-even": Plan(14, 0.2),
    "cct_cifar10": Plan(18, 1e-3, weight_decay=0.05, adam=True),
    "gru_cifar10": Plan(12, 1e-3, weight_decay=0.05, adam=True),
    "densenet_cifar100": Plan(14, 0.2),
    "inception_svhn": Plan(8, 0.1),
    "gmlp_cifar100": Plan(18, 1e-3, weight_decay=0.05, adam=True, cutout=8),
    "groupnorm_cifar100": Plan(12, 1e-3, weight_decay=0.05, adam=True, smoothing=0.1),
}
SECOND = {
    "convnext_cifar100": Plan(14, 1e-3, weight_decay=0.05, adam=True),
    "vit_cifar100": Plan(18, 1e-3, weight_decay=0.05, adam=True, cutout=8),
    "cct_cifar100": Plan(18, 1e-3, weight_decay=0.05, adam=True),
    "resnet9_cifar100": Plan(14, 0.2),
    "gru_cifar100": Plan(12, 1e-3, weight_decay=0.05, adam=True),
    "mixer_cifar10": Plan(18, 1e-3, weight_decay=0.05, adam=True, cutout=8),
    "gmlp_cifar10": Plan(18, 1e-3, weight_decay=0.05, adam=True, cutout=8),
    "narrow-vgg_cifar10": Plan(14, 0.1),
    "regnet_cifar10": Plan(12, 0.2),
    "densenet_cifar10": Plan(14, 0.2),
    "mobile_cifar10": Plan(14, 0.2),
    "convmixer_svhn": Plan(8, 0.01, weight_decay=0.01, adam=True),
}
STUDIES = {"choose": CHOOSE, "confirm": CONFIRM, "second": SECOND}


def read(path: Path) -> Network:
    """Return a network that :func:`train` wrote, in float32."""
    model, ind, _ = path.stem.split("_")
    network = create(model, DATASETS[ind])
    network.load_state_dict({name: _widened(tensor) for name, tensor in load_file(path).items()})
    return network.eval()


def _widened(tensor: Tensor) -> Tensor:
    return tensor.float() if tensor.dtype == torch.float16 else tensor


def train(name: str, plan: Plan, seed: int, args: argparse.Namespace) -> None:
    """Train one network and write its weights, unless they are there."""
    path = args.out / f"{name}_{seed}.safetensors"
    if path.exists():
        return
    model, ind = name.split("_")
    device = torch.device(args.device)
    torch.manual_seed(seed)
    network = create(model, DATASETS[ind])
    network.to(device=device, memory_format=torch.channels_last)  # type: ignore[call-overload]  # not in the stubs
    data = to_labelled(load(ind, split="train", limit=args.limit), DATASETS[ind], device)
    training = Training(network, data, plan, args.batch_size, flip=ind != "svhn", compiled=False, seed=seed)
    training.run(f"{name}_{seed}", args.seconds)
    state = {key: t.half() if t.is_floating_point() else t for key, t in network.state_dict().items()}
    network.load_state_dict({key: _widened(tensor) for key, tensor in state.items()})
    network.to(memory_format=torch.contiguous_format)  # type: ignore[call-overload]
    test = to_labelled(load(ind, split="test", limit=args.limit), DATASETS[ind], device)
    right = accuracy(network, test)
    with atomic_path(path) as fresh:
        held = {key: tensor.cpu().contiguous() for key, tensor in state.items()}
        save_file(held, fresh, metadata={"accuracy": f"{right:.2f}", "plan": str(plan)})
    print(f"{name}_{seed}: {right:.2f} % of the test set right", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", choices=STUDIES)
    parser.add_argument("--networks", help="some networks of the study, joined by commas; by default all")
    parser.add_argument("--seeds", default="0,1,2", help="joined by commas")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=90, help="fewer epochs where they would take longer than this")
    parser.add_argument("--batch-size", type=int, default=BATCH)
    parser.add_argument("--limit", type=int, help="at most this many images of each set, for a try")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    networks = STUDIES[args.study]
    names = args.networks.split(",") if args.networks else list(networks)
    if unknown := set(names) - set(networks):
        parser.error(f"there is no {', '.join(sorted(unknown))}: choose from {', '.join(networks)}")
    args.out.mkdir(parents=True, exist_ok=True)
    torch.backends.cudnn.benchmark = True
    failed = []
    for seed in map(int, args.seeds.split(",")):
        for name in names:
            try:
                train(name, networks[name], seed, args)
            except Exception:  # noqa: BLE001, PERF203  # whatever it is, the other networks are still to be trained
                traceback.print_exc()
                failed.append(f"{name}_{seed}")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    assert "cifar10-even" in SETS  # noqa: S101 - architectures adds it
    main()
