"""Networks with attention."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from studies.strangers.networks.mobile import Inverted
from studies.strangers.networks.pieces import averaged, unit

if TYPE_CHECKING:
    from collections.abc import Callable


class Attention(nn.Module):
    """Self-attention of tokens (N, T, width); ``maps`` linear maps make queries, keys and values."""

    def __init__(self, width: int, heads: int = 4, maps: int = 1) -> None:
        super().__init__()
        self.heads = heads
        self.inputs = nn.ModuleList(nn.Linear(width, 3 * width // maps) for _ in range(maps))
        self.output = nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        joined = torch.cat([linear(x) for linear in self.inputs], dim=-1)
        q, k, v = joined.view(*x.shape[:2], 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        weights = (q @ k.mT * q.shape[-1] ** -0.5).softmax(-1)
        out: Tensor = self.output((weights @ v).transpose(1, 2).flatten(2))
        return out


def mlp(width: int, act: Callable[[], nn.Module]) -> nn.Module:
    """Return two linear layers, twice as wide inside."""
    return nn.Sequential(nn.Linear(width, 2 * width), act(), nn.Linear(2 * width, width))


class NormFirst(nn.Module):
    """Attention and an MLP, each after a LayerNorm and beside a shortcut."""

    def __init__(self, width: int, act: Callable[[], nn.Module] = nn.GELU, maps: int = 1, eps: float = 1e-5) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(width, eps=eps)
        self.attention = Attention(width, maps=maps)
        self.norm2 = nn.LayerNorm(width, eps=eps)
        self.mlp = mlp(width, act)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        out: Tensor = x + self.mlp(self.norm2(x))
        return out


class NormLast(nn.Module):
    """Attention and an MLP, each beside a shortcut and with a LayerNorm of the sum."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads=8)
        self.mlp = mlp(width, nn.ReLU)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x))
        out: Tensor = self.norm2(x + self.mlp(x))
        return out


class ViT(nn.Module):
    """A vision transformer of 4×4 patches and a class token, whose last state the head sees."""

    def __init__(self, blocks: list[nn.Module], *, norms_all: bool, eps: float, width: int = 128) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.places = nn.Parameter(torch.zeros(1, 65, width))
        self.patch = nn.Conv2d(3, width, 4, 4)
        self.blocks = nn.Sequential(*blocks)
        self.norm = nn.LayerNorm(width, eps=eps)
        self.norms_all = norms_all
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patch(x).flatten(2).transpose(1, 2)
        x = self.blocks(torch.cat([self.token.expand(len(x), -1, -1), x], dim=1) + self.places)
        logits: Tensor = self.head(self.norm(x)[:, 0] if self.norms_all else self.norm(x[:, 0]))
        return logits


def sachin() -> nn.Module:
    """Return Sachinxmpl's ViT, with linear maps of their own for queries, keys and values."""
    return ViT([NormFirst(128, maps=3, eps=1e-6) for _ in range(4)], norms_all=True, eps=1e-6)


def smmk47() -> nn.Module:
    """Return smmk47's ViT, with LayerNorms after the shortcuts."""
    return ViT([NormLast(128) for _ in range(6)], norms_all=False, eps=1e-5)


class SequencePooling(nn.Module):
    """The mean of tokens (N, T, width) with weights that depend on the tokens."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        pooled: Tensor = (self.weight(x).softmax(1) * x).sum(1)
        return pooled


class CCT(nn.Module):
    """Nik212's compact transformer: a convolution makes the tokens.

    Its author's code adds the attention of the first image of a batch to all images; here each image has its own, as
    if it were alone in its batch.
    """

    def __init__(self, width: int = 128) -> None:
        super().__init__()
        self.places = nn.Parameter(torch.zeros(1, 256, width))
        self.tokens = nn.Sequential(nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(*(NormFirst(width) for _ in range(4)))
        self.norm = nn.LayerNorm(width)
        self.pool = SequencePooling(width)
        self.fc = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.tokens(x).flatten(2).transpose(1, 2) + self.places
        logits: Tensor = self.fc(self.pool(self.norm(self.blocks(x))))
        return logits


class MobileViTBlock(nn.Module):
    """A convolution, then attention among the pixels that have the same place in 2×2 patches; joined with the input."""

    def __init__(self, width: int, inside: int, depth: int) -> None:
        super().__init__()
        self.local = unit(width, width, 3, act=nn.SiLU)
        self.widen = nn.Conv2d(width, inside, 1, bias=False)
        self.blocks = nn.Sequential(*(NormFirst(inside, nn.SiLU) for _ in range(depth)))
        self.norm = nn.LayerNorm(inside)
        self.narrow = unit(inside, width, act=nn.SiLU)
        self.fuse = unit(2 * width, width, 3, act=nn.SiLU)

    def forward(self, x: Tensor) -> Tensor:
        y = self.widen(self.local(x))
        size = y.shape[2:]
        rows, columns = (-(-side // 2) for side in size)
        if size != (2 * rows, 2 * columns):
            y = interpolate(y, (2 * rows, 2 * columns), mode="bilinear")
        n, width = y.shape[:2]
        y = y.view(n, width, rows, 2, columns, 2).permute(0, 3, 5, 2, 4, 1).reshape(4 * n, rows * columns, width)
        y = self.norm(self.blocks(y)).view(n, 2, 2, rows, columns, width).permute(0, 5, 3, 1, 4, 2)
        y = y.reshape(n, width, 2 * rows, 2 * columns)
        if size != (2 * rows, 2 * columns):
            y = interpolate(y, size, mode="bilinear")
        out: Tensor = self.fuse(torch.cat([x, self.narrow(y)], dim=1))
        return out


def suyog() -> nn.Module:
    """Return Suyog-16's MobileViT of the smallest size, which enlarges images to 224 pixels."""
    layer = partial(unit, act=nn.SiLU)
    stages: list[nn.Module] = [
        Inverted(inputs, 2 * inputs, width, stride, unit=layer)
        for inputs, width, stride in ((16, 16, 1), (16, 24, 2), (24, 24, 1), (24, 24, 1))
    ]
    for inputs, width, inside, depth in ((24, 48, 64, 2), (48, 64, 80, 4), (64, 80, 96, 3)):
        stages += [Inverted(inputs, 2 * inputs, width, 2, unit=layer), MobileViTBlock(width, inside, depth)]
    enlarge = nn.Upsample((224, 224), mode="bilinear")
    return nn.Sequential(enlarge, layer(3, 16, 3, 2), nn.Sequential(*stages), layer(80, 320), *averaged(320))
