"""A vision transformer (Dosovitskiy et al., 2021) for images of 64×64 pixels."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from pnml_bench.zoo.network import IMAGENET, Network, Tap


class Block(nn.Module):
    """Attention among the tokens, then two layers for each token; both after a norm and beside a shortcut."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(width)
        self.qkv = nn.Linear(width, 3 * width)
        self.project = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width)
        self.fc1 = nn.Linear(width, 4 * width)
        self.fc2 = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        """Map tokens (N, T, width) to tokens of the same shape."""
        n, tokens, width = x.shape
        query, key, value = self.qkv(self.norm1(x)).view(n, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(query, key, value).transpose(1, 2).reshape(n, tokens, width)
        x = x + self.project(mixed)
        out: Tensor = x + self.fc2(gelu(self.fc1(self.norm2(x))))
        return out


class VisionTransformer(Network):
    """Patches as tokens, blocks of attention, and the mean of the tokens: 192 features, taps are the blocks.

    >>> VisionTransformer(200).features(torch.zeros(1, 3, 64, 64)).shape
    torch.Size([1, 192])
    """

    default_normalisation = IMAGENET

    def __init__(
        self, num_classes: int, *, side: int = 64, patch: int = 8, width: int = 192, depth: int = 9, heads: int = 3
    ) -> None:
        super().__init__()
        self.side = side
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.positions = nn.Parameter(torch.empty((side // patch) ** 2, width))
        self.blocks = nn.ModuleList(Block(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.add_module(self.head_name, nn.Linear(width, num_classes))
        self.initialise()

    def initialise(self) -> None:
        """Initialise the weights for training: small normal weights and positions, zero biases."""
        nn.init.trunc_normal_(self.positions, std=0.02)
        for module in self.modules():
            if isinstance(module, nn.Linear):
                nn.init.trunc_normal_(module.weight, std=0.02)
                nn.init.zeros_(module.bias)

    def embed(self, x: Tensor, tap: Tap) -> Tensor:
        """Compute the embeddings (N, M) of normalised images (N, 3, 64, 64)."""
        if x.shape[2:] != (self.side, self.side):
            height, width = x.shape[2:]
            raise ValueError(f"expected images of {self.side}×{self.side} pixels, got {width}×{height}: resize them")
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions
        for block in self.blocks:
            x = block(x)
            tap(x.transpose(1, 2))
        tokens: Tensor = self.norm(x)
        return tokens.mean(dim=1)
