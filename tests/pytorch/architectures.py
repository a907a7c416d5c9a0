"""Small networks of many architectures, with random weights, and batches for them."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from .networks import CLASSES, bert, images, seeded, vit

WIDTH = 6


class Case(NamedTuple):
    """A network and where the samples and the channels of its outputs are, by module or by their number of axes."""

    model: nn.Module
    args: tuple[Any, ...]
    axes: dict[int | str, tuple[int, int]]
    kwargs: dict[str, Any]


def sequences(count: int, length: int = 7, seed: int = 0) -> Tensor:
    return torch.randn(count, length, 5, generator=seeded(seed))


class Residual(nn.Module):
    """A block with activations that are modules and overwrite their input, as in torchvision."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = (nn.Conv2d(WIDTH, WIDTH, 3, padding=1, bias=False) for _ in range(2))
        self.bn1, self.bn2 = nn.BatchNorm2d(WIDTH), nn.BatchNorm2d(WIDTH)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.relu(x + self.bn2(self.conv2(self.relu(self.bn1(self.conv1(x))))))
        return found


class FunctionalResidual(Residual):
    """The same with functions for activations."""

    def forward(self, x: Tensor) -> Tensor:
        out = functional.relu(self.bn1(self.conv1(x)))
        return functional.relu(self.bn2(self.conv2(out)) + x)


class Dense(nn.Module):
    """A block that adds channels to its input."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm, self.conv = nn.BatchNorm2d(width), nn.Conv2d(width, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return torch.cat([x, self.conv(functional.relu(self.norm(x)))], dim=1)


class ConvNeXt(nn.Module):
    """A block whose inner layers have their channels last."""

    def __init__(self) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norm(self.depthwise(x).permute(0, 2, 3, 1))
        found: Tensor = x + self.down(functional.gelu(self.up(inner))).permute(0, 3, 1, 2)
        return found


class NormalisedFirst(nn.LayerNorm):
    """A normalisation of the channels of pictures (n, C, H, W), as ConvNeXt has between its stages."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1)).permute(0, 3, 1, 2)


class Images(nn.Module):
    """A stem, blocks, the mean over pixels, and a head."""

    def __init__(self, *blocks: nn.Module, width: int = WIDTH) -> None:
        super().__init__()
        self.stem, self.blocks = nn.Conv2d(3, WIDTH, 3), nn.Sequential(*blocks)
        self.head = nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.stem(x)).mean(dim=(2, 3)))
        return logits


class ChannelsLast(nn.Module):
    """A mixer: all outputs have their channels in the last axis."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(3 if i == 0 else WIDTH, WIDTH) for i in range(4))
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = x.permute(0, 2, 3, 1)
        for layer in self.inner:
            x = layer(x).tanh()
        logits: Tensor = self.head(x.mean(dim=(1, 2)))
        return logits


class Encoder(nn.Module):
    """A transformer of PyTorch's own encoder layers; padding is left out of what it computes."""

    def __init__(self, *, batch_first: bool, depth: int = 2) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=batch_first, activation="gelu")
        self.embed = nn.Linear(5, 8)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=batch_first)
        self.head, self.batch_first = nn.Linear(8, CLASSES), batch_first

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        x = self.embed(x)
        x = x if self.batch_first else x.transpose(0, 1)
        x = self.encoder(x, src_key_padding_mask=padding_mask)
        logits: Tensor = self.head((x if self.batch_first else x.transpose(0, 1))[:, 0])
        return logits


class Attention(nn.Module):
    """A transformer block written by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(8), nn.Linear(8, 24), nn.Linear(8, 8)
        self.mlp = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(self.norm(x)).chunk(3, dim=-1)
        x = x + self.out(functional.scaled_dot_product_attention(q, k, v))
        found: Tensor = x + self.mlp(x)
        return found


class Patches(nn.Module):
    """A vision transformer of such blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.blocks = nn.Conv2d(3, 8, 4, stride=4), nn.Sequential(*(Attention() for _ in range(3)))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(self.patch(x).flatten(2).transpose(1, 2)).mean(dim=1))
        return logits


class Embedded(nn.Module):
    """Patches of a picture as tokens (n, T, C), put out by a module whose last layer is a convolution."""

    def __init__(self, patch: int, width: int = 8) -> None:
        super().__init__()
        self.patch, self.first = nn.Conv2d(3, width, patch, stride=patch), nn.Parameter(torch.randn(1, 1, width))

    def forward(self, x: Tensor) -> Tensor:
        patches = self.patch(x).flatten(2).transpose(1, 2)
        return torch.cat([self.first.expand(len(x), -1, -1), patches], dim=1)


class NormalisedRows(nn.Module):
    """A residual block on tokens (n, T, C) that normalises all tokens of all samples as rows of one matrix."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), nn.BatchNorm1d(width)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = x + self.norm(self.linear(x).flatten(0, 1)).reshape(x.shape).tanh()
        return found


class ConvolvedTokens(nn.Module):
    """A block on tokens (n, T, C) that ends in a convolution along them."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.up, self.along = nn.Linear(width, 2 * width), nn.Conv1d(2 * width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.along(self.up(x).tanh().transpose(1, 2)).transpose(1, 2)
        return found


class NormalisedLast(ConvolvedTokens):
    """The same with a normalisation of the channels at its end."""

    def __init__(self, width: int = 8) -> None:
        super().__init__(width)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.norm(super().forward(x))
        return found


class Joined(nn.Module):
    """A block on tokens (n, T, C) that joins what two layers put out."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.along = nn.Conv1d(width, 8, 3, padding=1)
        self.left, self.right = nn.Linear(8, 7), nn.Linear(8, 7)

    def forward(self, x: Tensor) -> Tensor:
        x = self.along(x.transpose(1, 2)).transpose(1, 2)
        return torch.cat([self.left(x), self.right(x)], dim=2)


class Inner(nn.Module):
    """A block on tokens (n, T, C) and on parts of them, (n · T, P, C): both enter it and leave it, the parts first."""

    def __init__(self) -> None:
        super().__init__()
        self.parts, self.join, self.tokens = nn.Linear(4, 4), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, both: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        parts, tokens = both
        parts = parts + self.parts(parts).tanh()
        tokens = tokens + self.join(parts.reshape(tokens.shape))
        return parts, tokens + self.tokens(tokens).tanh()


class InAndOut(nn.Module):
    """Such blocks, the mean of the tokens, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.blocks = nn.Linear(5, 8), nn.Sequential(*(Inner() for _ in range(10)))
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.first(x)
        _, tokens = self.blocks((tokens.reshape(-1, 2, 4), tokens))
        logits: Tensor = self.head(tokens.mean(dim=1))
        return logits


class ConvolvedHeads(nn.Module):
    """A block on tokens (n, T, C) that ends in a convolution over the heads of an attention, as pictures (T, C / 2)."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.values, self.heads = nn.Linear(width, width), nn.Conv2d(2, 2, (3, 1), padding=(1, 0), groups=2)

    def forward(self, x: Tensor) -> Tensor:
        values = self.values(x).unflatten(2, (2, -1)).transpose(1, 2)
        found: Tensor = x + self.heads(values).transpose(1, 2).flatten(2).tanh()
        return found


class ConvolvedPixels(nn.Module):
    """A block on pixels (n, H, W, C) that ends in a convolution."""

    def __init__(self, inputs: int = WIDTH) -> None:
        super().__init__()
        self.conv = nn.Conv2d(inputs, WIDTH, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.conv(x.permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        return found


class Scale(nn.Module):
    """A factor for every channel in the last axis: it does not say how many there are."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.factor = nn.Parameter(torch.rand(width) + 0.5)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.factor


class OwnNorm(nn.LayerNorm):
    """A normalisation of the last axis with a ``forward`` of its own."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x)


class GatedPixels(nn.Module):
    """A block on pixels (n, H, W, C) with a convolution inside, and a scale at its end."""

    def __init__(self, width: int, scale: nn.Module) -> None:
        super().__init__()
        self.norm, self.down, self.scale = OwnNorm(width), nn.Linear(width, width), scale
        self.conv = nn.Conv2d(width, width, 3, padding=1, groups=width)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv(self.norm(x).permute(0, 3, 1, 2)).permute(0, 2, 3, 1)
        found: Tensor = x + self.scale(self.down(functional.gelu(inner)))
        return found


class PixelsAmidst(nn.Module):
    """A block on tokens (n, T, C) that convolves them as pixels between two linear layers."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        self.conv = nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=2 * width)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.conv(self.up(x).transpose(1, 2)[..., None])
        found: Tensor = x + self.down(functional.gelu(inner.flatten(2).transpose(1, 2)))
        return found


class Lighted(nn.Module):
    """A block on pictures (n, C, H, W) that ends in a factor for every pixel, from a linear layer of one feature."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.up, self.down = nn.Conv2d(WIDTH, WIDTH, 3, padding=1), nn.Linear(1, 4), nn.Linear(4, 1)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.conv(x)
        light = self.down(self.up(x.mean(dim=1).flatten(1)[..., None]).tanh())
        found: Tensor = x * torch.sigmoid(light).reshape(len(x), 1, *x.shape[2:])
        return found


class SizedNorm(nn.Module):
    """A normalisation that says its size as a number, not as a shape."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.normalized_shape, self.weight = size, nn.Parameter(torch.ones(size))

    def forward(self, x: Tensor) -> Tensor:
        return x / x.std(dim=-1, keepdim=True) * self.weight


class MeanOfTokens(nn.Module):
    """Blocks on tokens, their mean, and a head."""

    def __init__(self, *blocks: nn.Module, width: int = 8) -> None:
        super().__init__()
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(width, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.blocks(x).flatten(1, -2).mean(dim=1))
        return logits


class Recurrent(nn.Module):
    """Two recurrent layers, which return tuples."""

    def __init__(self, kind: type[nn.LSTM | nn.GRU], *, batch_first: bool) -> None:
        super().__init__()
        self.first, self.second = kind(5, 9, batch_first=batch_first), kind(9, 8, batch_first=batch_first)
        self.head, self.batch_first = nn.Linear(8, CLASSES), batch_first

    def forward(self, x: Tensor) -> Tensor:
        x = x if self.batch_first else x.transpose(0, 1)
        x, _ = self.second(self.first(x)[0])
        logits: Tensor = self.head(x[:, -1] if self.batch_first else x[-1])
        return logits


class Repeated(nn.Module):
    """One block that is called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.block(x).tanh()
        logits: Tensor = self.head(x)
        return logits


class Experts(nn.Module):
    """Every sample goes to one of three experts, which do not see the others."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.gate, self.last = nn.Linear(8, 8), nn.Linear(8, 3), nn.Linear(8, 8)
        self.experts, self.head = nn.ModuleList(nn.Linear(8, 8) for _ in range(3)), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x).tanh()
        chosen, found = self.gate(x).argmax(dim=1), torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            found[chosen == number] = expert(x[chosen == number])
        logits: Tensor = self.head(self.last(x + found).tanh())
        return logits


class Siamese(nn.Module):
    """One body for both of two inputs, and a head on how they differ."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Sequential(nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 8)), nn.Linear(8, CLASSES)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        logits: Tensor = self.head((self.body(left) - self.body(right)).abs())
        return logits


def volumes(count: int, seed: int = 0) -> Tensor:
    return torch.randn(count, 2, 6, 7, 8, generator=seeded(seed))


def _convolutions(kind: type[nn.Module], norm: type[nn.Module], pool: type[nn.Module], channels: int) -> nn.Module:
    return nn.Sequential(
        kind(channels, WIDTH, 3),
        norm(WIDTH),
        nn.ReLU(inplace=True),
        kind(WIDTH, 4, 3),
        nn.ReLU(inplace=True),
        pool(1),
        nn.Flatten(),
        nn.Linear(4, CLASSES),
    )


def linear(width: int, count: int) -> list[nn.Module]:
    return [nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(count)]


def cases() -> dict[str, Case]:
    """Return all networks, in eval mode."""
    torch.manual_seed(0)
    first, last, tokens_first = {4: (0, 1)}, {3: (0, 2), 4: (0, 3)}, {"embed": (0, 2), 3: (1, 2)}
    picture, sequence = (images(9),), (sequences(9),)
    found: dict[str, tuple[Any, ...]] = {
        "convolutions": (_convolutions(nn.Conv2d, nn.BatchNorm2d, nn.AdaptiveAvgPool2d, 3), picture, first),
        "one-dimensional": (_convolutions(nn.Conv1d, nn.BatchNorm1d, nn.AdaptiveAvgPool1d, 7), sequence, {3: (0, 1)}),
        "three-dimensional": (
            _convolutions(nn.Conv3d, nn.BatchNorm3d, nn.AdaptiveAvgPool3d, 2),
            (volumes(9),),
            {5: (0, 1)},
        ),
        "residual": (Images(*(Residual() for _ in range(3))), picture, first),
        "functional residual": (Images(*(FunctionalResidual() for _ in range(3))), picture, first),
        "dense": (Images(*(Dense(WIDTH + 3 * i) for i in range(3)), width=WIDTH + 9), picture, first),
        "channels as many as pixels": (Images(*(ConvNeXt() for _ in range(12))), picture, first),
        "norms of as many channels as pixels": (Images(*(NormalisedFirst(WIDTH) for _ in range(3))), picture, first),
        "channels last": (ChannelsLast(), picture, last),
        "encoder, samples first": (Encoder(batch_first=True), sequence, last),
        "encoder, tokens first": (Encoder(batch_first=False), sequence, tokens_first),
        "deep encoder, tokens first": (Encoder(batch_first=False, depth=9), sequence, tokens_first),
        "vision transformer": (Patches(), picture, {3: (0, 2), 4: (0, 1)}),
        "recurrent, samples first": (Recurrent(nn.LSTM, batch_first=True), sequence, last),
        "recurrent, tokens first": (Recurrent(nn.LSTM, batch_first=False), sequence, tokens_first),
        "gated, tokens first": (Recurrent(nn.GRU, batch_first=False), sequence, tokens_first),
        "patches as tokens": (MeanOfTokens(Embedded(4), *linear(8, 5)), picture, last),
        "as many patches as channels": (MeanOfTokens(Embedded(4, width=5), *linear(5, 5), width=5), picture, last),
        "normalised rows": (MeanOfTokens(nn.Linear(5, 8), *(NormalisedRows() for _ in range(10))), sequence, last),
        "convolved tokens": (MeanOfTokens(nn.Linear(5, 8), *(ConvolvedTokens() for _ in range(10))), sequence, last),
        "as many tokens as channels": (
            MeanOfTokens(nn.Linear(5, 7), *(ConvolvedTokens(7) for _ in range(10)), width=7),
            sequence,
            last,
        ),
        "as many tokens as normalised channels": (
            MeanOfTokens(nn.Linear(5, 7), *(NormalisedLast(7) for _ in range(10)), width=7),
            sequence,
            last,
        ),
        "joined channels": (
            MeanOfTokens(nn.Embedding(50, 8), Joined(), *(Joined(14) for _ in range(9)), width=14),
            (torch.randint(0, 50, (9, 7), generator=seeded()),),
            last,
        ),
        "parts of tokens first": (InAndOut(), sequence, last),
        "convolved heads": (MeanOfTokens(nn.Linear(5, 8), *(ConvolvedHeads() for _ in range(10))), sequence, last),
        "convolved pixels, channels last": (
            MeanOfTokens(ConvolvedPixels(3), *(ConvolvedPixels() for _ in range(10)), width=WIDTH),
            (images(9).permute(0, 2, 3, 1),),
            last,
        ),
        "norm with a number": (MeanOfTokens(nn.Linear(5, 8), SizedNorm(8), *linear(8, 2)), sequence, last),
        "repeated": (Repeated(), (torch.randn(9, 8, generator=seeded()),), {}),
        "experts": (Experts(), (torch.randn(9, 8, generator=seeded()),), {}),
        "two inputs": (
            Siamese(),
            (),
            {},
            {"left": torch.randn(9, 8, generator=seeded()), "right": torch.randn(9, 8, generator=seeded(1))},
        ),
        "bert": (bert(), (), last, {"input_ids": torch.randint(0, 50, (9, 10), generator=seeded())}),
        "vit": (vit(), picture, {3: (0, 2), 4: (0, 1)}),
        "scaled pixels, channels last": (
            MeanOfTokens(nn.Linear(3, WIDTH), *(GatedPixels(WIDTH, Scale(WIDTH)) for _ in range(10)), width=WIDTH),
            (images(9).permute(0, 2, 3, 1),),
            last,
        ),
        "as many pixels as channels, channels last": (
            MeanOfTokens(nn.Linear(3, 8), *(GatedPixels(8, OwnNorm(8)) for _ in range(10))),
            (images(9).permute(0, 2, 3, 1),),
            last,
        ),
        "as many convolved tokens as channels": (
            MeanOfTokens(nn.Linear(5, 7), *(PixelsAmidst(7) for _ in range(10)), width=7),
            sequence,
            last,
        ),
        "a factor for every pixel": (Images(*(Lighted() for _ in range(10))), picture, {4: (0, 1), "stem": (0, 1)}),
    }
    every = {name: Case(*parts, *([{}] if len(parts) == 3 else [])) for name, parts in found.items()}
    for case in every.values():
        case.model.eval()
    return every
