"""A network that reads an image as a sequence."""

from __future__ import annotations

import torch
from torch import Tensor, nn


class Kernel(nn.Module):
    """The kernel of a diagonal state space model, as long as the sequence."""

    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        self.C = nn.Parameter(torch.zeros(width, states, 2))
        self.log_dt = nn.Parameter(torch.zeros(width))
        self.log_A_real = nn.Parameter(torch.zeros(width, states))
        self.A_imag = nn.Parameter(torch.ones(width, states))

    def forward(self, length: int) -> Tensor:
        a = torch.complex(-self.log_A_real.exp(), self.A_imag)
        step = a * self.log_dt.exp().unsqueeze(-1)
        c = torch.view_as_complex(self.C) * (step.exp() - 1) / a
        powers = (step.unsqueeze(-1) * torch.arange(length, device=a.device)).exp()
        return 2 * torch.einsum("hn,hnl->hl", c, powers).real


class StateSpace(nn.Module):
    """A convolution along all of the sequence (N, width, T), and a gated mix of the channels."""

    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        self.D = nn.Parameter(torch.zeros(width))
        self.kernel = Kernel(width, states)
        self.act = nn.GELU()
        self.mix = nn.Conv1d(width, 2 * width, 1)
        self.gate = nn.GLU(dim=-2)

    def forward(self, x: Tensor) -> Tensor:
        length = x.shape[-1]
        kernel = torch.fft.rfft(self.kernel(length), n=2 * length)
        y = torch.fft.irfft(torch.fft.rfft(x, n=2 * length) * kernel, n=2 * length)[..., :length]
        out: Tensor = self.gate(self.mix(self.act(y + x * self.D.unsqueeze(-1))))
        return out


class Block(nn.Module):
    """A state space beside a shortcut, and a LayerNorm of the sum."""

    def __init__(self, width: int, states: int) -> None:
        super().__init__()
        self.space = StateSpace(width, states)
        self.norm = nn.LayerNorm(width)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.norm((self.space(x) + x).transpose(1, 2)).transpose(1, 2)
        return out


class S4D(nn.Module):
    """The S4D of Chord-Chen-30: four state spaces over the 1,024 pixels of an image, row by row."""

    def __init__(self, width: int = 128, states: int = 32) -> None:
        super().__init__()
        self.encoder = nn.Linear(3, width)
        self.blocks = nn.Sequential(*(Block(width, states) for _ in range(4)))
        self.decoder = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.encoder(x.flatten(2).transpose(1, 2)).transpose(1, 2)
        logits: Tensor = self.decoder(self.blocks(x).mean(2))
        return logits
