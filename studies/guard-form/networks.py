"""The networks of the study: small ones of many kinds, trained on 32×32 images, and the paper's DenseNet-BC-100."""

# mypy: disable-error-code="no-any-return"
from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad, relu, scaled_dot_product_attention

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MEAN, STD = (0.4914, 0.4824, 0.4467), (0.2471, 0.2435, 0.2616)


class Network(nn.Module):
    """A stem, blocks, a tail that makes embeddings, and a linear head, on pictures (n, 3, 32, 32) in [0, 1]."""

    def __init__(self, stem: nn.Module, blocks: Sequence[nn.Module], tail: nn.Module, width: int, classes: int) -> None:
        super().__init__()
        self.stem, self.blocks, self.tail = stem, nn.ModuleList(blocks), tail
        self.fc = nn.Linear(width, classes)
        self.register_buffer("mean", torch.tensor(MEAN)[:, None, None], persistent=False)
        self.register_buffer("std", torch.tensor(STD)[:, None, None], persistent=False)

    def forward(self, x: Tensor, tap: Callable[[Tensor], None] = lambda _: None) -> tuple[Tensor, Tensor]:
        """Return embeddings and logits; ``tap`` is called with the output of every block."""
        x = self.stem((x - self.get_buffer("mean")) / self.get_buffer("std"))
        for block in self.blocks:
            x = block(x)
            tap(x)
        x = self.tail(x)
        return x, self.fc(x)


class Mean(nn.Module):
    """The mean over ``dims``."""

    def __init__(self, *dims: int) -> None:
        super().__init__()
        self.dims = dims

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=self.dims)


class Beside(nn.Module):
    """``after(shortcut(x) + inner(x))``."""

    def __init__(self, *inner: nn.Module, shortcut: nn.Module | None = None, after: nn.Module | None = None) -> None:
        super().__init__()
        self.inner, self.shortcut, self.after = nn.Sequential(*inner), shortcut or nn.Identity(), after or nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.after(self.shortcut(x) + self.inner(x))


def convolution(inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    conv = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(outputs)]


def residual(inputs: int, width: int, stride: int, *, bottleneck: bool) -> nn.Module:
    outputs = 4 * width if bottleneck else width
    if bottleneck:
        inner = [*convolution(inputs, width, 1), nn.ReLU(), *convolution(width, width, 3, stride), nn.ReLU()]
        inner += convolution(width, outputs, 1)
    else:
        inner = [*convolution(inputs, width, 3, stride), nn.ReLU(), *convolution(width, width)]
    same = stride == 1 and inputs == outputs
    return Beside(
        *inner, shortcut=None if same else nn.Sequential(*convolution(inputs, outputs, 1, stride)), after=nn.ReLU()
    )


def resnet(classes: int, depths: tuple[int, ...], *, bottleneck: bool) -> Network:
    blocks, inputs = [], 64
    for stage, depth in enumerate(depths):
        for number in range(depth):
            width = 64 * 2**stage
            blocks.append(residual(inputs, width, 2 if stage and not number else 1, bottleneck=bottleneck))
            inputs = 4 * width if bottleneck else width
    return Network(nn.Sequential(*convolution(3, 64), nn.ReLU()), blocks, Mean(2, 3), inputs, classes)


class PreActivation(nn.Module):
    """A block of a WideResNet."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU())
        conv = partial(nn.Conv2d, kernel_size=3, padding=1, bias=False)
        self.inner = nn.Sequential(
            conv(inputs, outputs, stride=stride), nn.BatchNorm2d(outputs), nn.ReLU(), conv(outputs, outputs)
        )
        self.shortcut = nn.Identity() if inputs == outputs else nn.Conv2d(inputs, outputs, 1, stride, bias=False)
        self.changes = inputs != outputs

    def forward(self, x: Tensor) -> Tensor:
        active = self.first(x)
        return self.shortcut(active if self.changes else x) + self.inner(active)


def wide_resnet(classes: int, depth: int = 2, width: int = 4) -> Network:
    blocks, inputs = [], 16
    for stage in range(3):
        for number in range(depth):
            outputs = 16 * width * 2**stage
            blocks.append(PreActivation(inputs, outputs, 2 if stage and not number else 1))
            inputs = outputs
    tail = nn.Sequential(nn.BatchNorm2d(inputs), nn.ReLU(), Mean(2, 3))
    return Network(nn.Conv2d(3, 16, 3, padding=1, bias=False), blocks, tail, inputs, classes)


def vgg(classes: int) -> Network:
    blocks, inputs = [], 3
    for width in (64, 128, 256, 512, 512):
        for number in range(2):
            pool = nn.MaxPool2d(2) if number else nn.Identity()
            blocks.append(nn.Sequential(*convolution(inputs, width), nn.ReLU(), pool))
            inputs = width
    tail = nn.Sequential(nn.Flatten(), nn.Linear(512, 512), nn.ReLU(), nn.Dropout(0.5))
    return Network(nn.Identity(), blocks, tail, 512, classes)


class Dense(nn.Module):
    """A bottleneck of DenseNet-BC, which appends ``growth`` channels, after a transition where there is one."""

    def __init__(self, channels: int, growth: int, *, transition: bool) -> None:
        super().__init__()
        self.transition = transition
        if transition:
            self.bn0 = nn.BatchNorm2d(channels)
            self.conv0 = nn.Conv2d(channels, channels // 2, 1, bias=False)
            channels //= 2
        self.bn1 = nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.transition:
            x = nn.functional.avg_pool2d(self.conv0(relu(self.bn0(x))), 2)
        return torch.cat((x, self.conv2(relu(self.bn2(self.conv1(relu(self.bn1(x))))))), dim=1)


def densenet(classes: int, depth: int, growth: int) -> Network:
    blocks, channels = [], 2 * growth
    for stage in range(3):
        for number in range(depth):
            transition = stage > 0 and number == 0
            blocks.append(Dense(channels, growth, transition=transition))
            channels = (channels // 2 if transition else channels) + growth
    tail = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), Mean(2, 3))
    return Network(nn.Conv2d(3, 2 * growth, 3, padding=1, bias=False), blocks, tail, channels, classes)


def published_densenet(state: dict[str, Tensor]) -> Network:
    """Return the paper's DenseNet-BC-100 with published weights."""
    network = densenet(len(state["fc.bias"]), 16, 12)
    renamed = {}
    for name, value in state.items():
        parts = name.split(".")
        if parts[0].startswith("block"):
            parts[:3] = ["blocks", str(16 * (int(parts[0][5:]) - 1) + int(parts[2]))]
        elif parts[0].startswith("trans"):
            parts[:2] = ["blocks", str(16 * int(parts[0][5:])), parts[1].replace("1", "0")]
        else:
            parts[0] = {"conv1": "stem", "bn1": "tail.0", "fc": "fc"}[parts[0]]
        renamed[".".join(parts)] = value
    missing, unexpected = network.load_state_dict(renamed, strict=False)
    if unexpected or any("num_batches_tracked" not in name for name in missing):
        raise ValueError(f"not a DenseNet-BC-100 of the paper: {missing} missing, {unexpected} unexpected")
    network.get_buffer("mean")[:] = torch.tensor([125.3, 123.0, 113.9])[:, None, None] / 255
    network.get_buffer("std")[:] = torch.tensor([63.0, 62.1, 66.7])[:, None, None] / 255
    return network


class Attention(nn.Module):
    """Self-attention of tokens (n, T, width)."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        return self.out(scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))


class Swap(nn.Module):
    """Swap two axes."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__()
        self.axes = first, second

    def forward(self, x: Tensor) -> Tensor:
        return x.transpose(*self.axes)


class Tokens(nn.Module):
    """Patches of 4×4 pixels as tokens (n, 64, width), each with what is learnt of its place."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, 4, stride=4)
        self.place = nn.Parameter(0.02 * torch.randn(1, 64, width))

    def forward(self, x: Tensor) -> Tensor:
        return self.patch(x).flatten(2).transpose(1, 2) + self.place


def mlp(width: int, inside: int) -> tuple[nn.Module, ...]:
    return nn.Linear(width, inside), nn.GELU(), nn.Linear(inside, width)


def vit(classes: int, width: int = 256, depth: int = 8) -> Network:
    blocks: list[nn.Module] = [
        nn.Sequential(
            Beside(nn.LayerNorm(width), Attention(width, 4)), Beside(nn.LayerNorm(width), *mlp(width, 2 * width))
        )
        for _ in range(depth)
    ]
    return Network(Tokens(width), blocks, nn.Sequential(Mean(1), nn.LayerNorm(width)), width, classes)


def mixer(classes: int, width: int = 256, depth: int = 8) -> Network:
    blocks: list[nn.Module] = [
        nn.Sequential(
            Beside(nn.LayerNorm(width), Swap(1, 2), *mlp(64, 128), Swap(1, 2)),
            Beside(nn.LayerNorm(width), *mlp(width, 2 * width)),
        )
        for _ in range(depth)
    ]
    return Network(Tokens(width), blocks, nn.Sequential(nn.LayerNorm(width), Mean(1)), width, classes)


class ChannelNorm(nn.LayerNorm):
    """LayerNorm over the channels of pictures."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.movedim(1, 3)).movedim(3, 1)


def convnext(classes: int, widths: tuple[int, ...] = (96, 192, 384), depths: tuple[int, ...] = (2, 4, 2)) -> Network:
    blocks: list[nn.Module] = []
    for stage, (width, depth) in enumerate(zip(widths, depths, strict=True)):
        for number in range(depth):
            deeper = nn.Conv2d(width, 4 * width, 1), nn.GELU(), nn.Conv2d(4 * width, width, 1)
            block: nn.Module = Beside(nn.Conv2d(width, width, 5, padding=2, groups=width), ChannelNorm(width), *deeper)
            if stage and not number:
                down = ChannelNorm(widths[stage - 1]), nn.Conv2d(widths[stage - 1], width, 2, stride=2)
                block = nn.Sequential(*down, block)
            blocks.append(block)
    stem = nn.Sequential(nn.Conv2d(3, widths[0], 2, stride=2), ChannelNorm(widths[0]))
    return Network(stem, blocks, nn.Sequential(Mean(2, 3), nn.LayerNorm(widths[-1])), widths[-1], classes)


def mobilenet(classes: int) -> Network:
    blocks, inputs = [], 32
    for width, depth, stride in ((24, 2, 1), (48, 3, 2), (96, 3, 2), (160, 2, 2)):
        for number in range(depth):
            step, wide = 1 if number else stride, 6 * inputs
            inner = [*convolution(inputs, wide, 1), nn.ReLU6(), *convolution(wide, wide, 3, step, wide), nn.ReLU6()]
            inner += convolution(wide, width, 1)
            blocks.append(Beside(*inner) if step == 1 and inputs == width else nn.Sequential(*inner))
            inputs = width
    tail = nn.Sequential(*convolution(inputs, 640, 1), nn.ReLU6(), Mean(2, 3), nn.Dropout(0.2))
    return Network(nn.Sequential(*convolution(3, 32), nn.ReLU6()), blocks, tail, 640, classes)


class Recurrent(nn.GRU):
    """A layer of GRU, without its last state."""

    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        steps: Tensor = super().forward(x)[0]
        return steps


class Rows(nn.Module):
    """The rows of a picture as steps (n, 32, 96)."""

    def forward(self, x: Tensor) -> Tensor:
        return x.movedim(1, 3).flatten(2)


class Last(nn.Module):
    """The last step."""

    def forward(self, x: Tensor) -> Tensor:
        return x[:, -1]


def gru(classes: int, width: int = 256) -> Network:
    blocks = [Recurrent(96 if not number else width, width, batch_first=True) for number in range(4)]
    return Network(Rows(), blocks, Last(), width, classes)


MAKERS: dict[str, Callable[[int], Network]] = {
    "resnet18": partial(resnet, depths=(2, 2, 2, 2), bottleneck=False),
    "resnet50": partial(resnet, depths=(3, 4, 6, 3), bottleneck=True),
    "wrn16": wide_resnet,
    "vgg13": vgg,
    "densenet40": partial(densenet, depth=6, growth=24),
    "vit": vit,
    "mixer": mixer,
    "convnext": convnext,
    "mobilenet": mobilenet,
    "gru": gru,
}
ADAPTIVE = ("vit", "mixer", "convnext", "gru")  # trained by AdamW, the others by SGD


def train(kind: str, images: Tensor, labels: Tensor, classes: int, *, epochs: int, flips: bool) -> Network:
    """Return a trained network, given pictures (n, 3, 32, 32) of uint8 on the device to train on."""
    torch.manual_seed(0)
    device, batch = images.device, 256
    network = MAKERS[kind](classes).to(device)
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    if kind in ADAPTIVE:
        optimiser: torch.optim.Optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3, weight_decay=0.05)
    else:
        optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4, nesterov=True)
    steps = len(images) // batch
    rate = optimiser.param_groups[0]["lr"]
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimiser, rate, total_steps=epochs * steps, pct_start=0.2)
    wide = pad(images, (4, 4, 4, 4))
    offsets = torch.arange(32, device=device)
    for _ in range(epochs):
        order = torch.randperm(len(images), device=device)
        for step in range(steps):
            rows = order[step * batch : (step + 1) * batch]
            down, right = torch.randint(0, 9, (2, batch, 1), device=device)
            across = (
                (offsets + right)
                if not flips
                else torch.where(torch.rand(batch, 1, device=device) < 0.5, offsets + right, offsets.flip(0) + right)
            )
            x = wide[rows[:, None, None], :, (offsets + down)[:, :, None], across[:, None, :]].movedim(3, 1)
            with torch.autocast(device.type, torch.bfloat16):
                _, logits = network(x.float().div(255).contiguous(memory_format=torch.channels_last))
            loss = cross_entropy(logits.float(), labels[rows])
            optimiser.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            nn.utils.clip_grad_norm_(network.parameters(), 2.0)
            optimiser.step()
            schedule.step()
    return network.eval()
