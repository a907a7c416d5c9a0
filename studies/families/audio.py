"""Spoken digits: recordings of six speakers with two of the ten digits left out, and a small network.

    git clone https://github.com/Jakobovski/free-spoken-digit-dataset FOLDER/digits
    git clone https://github.com/karolpiczak/ESC-50 FOLDER/sounds
    python -m studies.families.audio --data FOLDER

For every seed other two digits are left out: their test recordings are near-OOD. The loudest second of each of 500
recordings of ESC-50 is far-OOD: rain, dogs, engines and the like. A recording is a log-mel spectrogram of 40 bands and
64 frames. The first ten recordings of each digit and speaker are for testing. The network has five convolutions.
"""

from __future__ import annotations

from functools import cache, partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.io import wavfile
from scipy.signal import resample_poly, stft
from torch import Tensor, nn

from pnml.pytorch.layers import find_layers
from studies.families.family import HEAD, Part, Task, run_family, run_model

if TYPE_CHECKING:
    from pathlib import Path

SEEDS = range(5)
RATE, BANDS, FRAMES, WINDOW, STEP = 8000, 40, 64, 256, 125
LEFT_OUT, TEST, SOUNDS = 2, 10, 500
EPOCHS, BATCH = 20, 64


class Network(nn.Module):
    """Five convolutions with batch norm and ReLU, the mean over time and bands, and a linear head."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        widths, strides = (1, 16, 32, 32, 64, 64), (2, 2, 1, 2, 1)
        self.blocks = nn.Sequential(
            *(
                nn.Sequential(nn.Conv2d(before, after, 3, stride, padding=1), nn.BatchNorm2d(after), nn.ReLU())
                for before, after, stride in zip(widths, widths[1:], strides, strict=False)
            )
        )
        self.add_module(HEAD, nn.Linear(widths[-1], classes))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.get_submodule(HEAD)(self.blocks(x).mean(dim=(2, 3)))
        return logits


def mel_filters() -> np.ndarray:
    """Return triangles (bands, frequencies) whose corners are equally spaced on the mel scale."""
    mel = np.linspace(0, 2595 * np.log10(1 + RATE / 2 / 700), BANDS + 2)
    corners = 700 * (10 ** (mel / 2595) - 1)
    frequencies = np.linspace(0, RATE / 2, WINDOW // 2 + 1)
    rising = (frequencies - corners[:-2, None]) / np.diff(corners)[:-1, None]
    falling = (corners[2:, None] - frequencies) / np.diff(corners)[1:, None]
    return np.maximum(0, np.minimum(rising, falling))


def spectrogram(sound: np.ndarray) -> np.ndarray:
    """Return the log-mel spectrogram (1, bands, frames), less its mean, of one second with the sound in its centre."""
    second = np.zeros(RATE, dtype=np.float32)
    kept = sound[:RATE] / max(1e-6, np.abs(sound).max())
    start = (RATE - len(kept)) // 2
    second[start : start + len(kept)] = kept
    _, _, waves = stft(second, RATE, nperseg=WINDOW, noverlap=WINDOW - STEP, padded=False)
    bands = np.log(mel_filters() @ np.abs(waves[:, :FRAMES]) ** 2 + 1e-8)
    return (bands - bands.mean())[None].astype(np.float32) / 4


def read(path: Path) -> np.ndarray:
    """Return a recording at 8,000 samples a second, one channel."""
    rate, samples = wavfile.read(path)
    mono = samples.astype(np.float32).reshape(len(samples), -1).mean(axis=1)
    return mono if rate == RATE else resample_poly(mono, RATE, rate)


def loudest(sound: np.ndarray) -> np.ndarray:
    """Return the second with the most energy."""
    energy = np.cumsum(np.concatenate([[0.0], sound.astype(np.float64) ** 2]))
    start = int(np.argmax(energy[RATE:] - energy[:-RATE]))
    return sound[start : start + RATE]


@cache
def recordings(folder: Path) -> tuple[Tensor, np.ndarray, np.ndarray, Tensor]:
    """Return the spectrograms of digits, which digit each is, whether it is for testing, and those of other sounds."""
    paths = sorted((folder / "digits" / "recordings").glob("*.wav"))
    names = [path.stem.split("_") for path in paths]
    digits = np.array([int(digit) for digit, _, _ in names])
    test = np.array([int(number) < TEST for _, _, number in names])
    sounds = sorted((folder / "sounds" / "audio").glob("*.wav"))
    sounds = sounds[:: len(sounds) // SOUNDS][:SOUNDS]
    spoken = np.stack([spectrogram(read(path)) for path in paths])
    others = np.stack([spectrogram(loudest(read(path))) for path in sounds])
    return torch.from_numpy(spoken), digits, test, torch.from_numpy(others)


def train(network: Network, x: Tensor, labels: Tensor) -> Network:
    """Train with AdamW and a cosine schedule; recordings are shifted in time by up to eight frames."""
    optimizer = torch.optim.AdamW(network.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS * -(-len(x) // BATCH))
    for _ in range(EPOCHS):
        for batch in torch.randperm(len(x)).split(BATCH):
            shifted = x[batch].roll(int(torch.randint(-8, 9, ())), dims=3)
            optimizer.zero_grad()
            torch.autograd.backward(nn.functional.cross_entropy(network(shifted), labels[batch]))
            optimizer.step()
            schedule.step()
    return network.eval()


def make(folder: Path, seed: int) -> Task:
    spoken, digits, test, others = recordings(folder)
    out = np.random.default_rng(seed).choice(10, LEFT_OUT, replace=False)
    inside = np.setdiff1d(np.arange(10), out)
    known = np.isin(digits, inside)
    labels = {part: np.searchsorted(inside, digits[known & rows]) for part, rows in (("train", ~test), ("test", test))}
    torch.manual_seed(seed)
    x = spoken[torch.from_numpy(known & ~test)]
    network = train(Network(len(inside)), x, torch.from_numpy(labels["train"]))
    layers = find_layers(network, (x[:4],), head=HEAD)

    def part(x: Tensor) -> Part:
        return run_model(network, layers, ({"x": batch} for batch in x.split(100)))

    return Task(
        network.get_submodule(HEAD),
        layers,
        part(x)._replace(labels=labels["train"]),
        part(spoken[torch.from_numpy(known & test)])._replace(labels=labels["test"]),
        {
            "near: left-out digits": part(spoken[torch.from_numpy(~known & test)]),
            "far: other sounds": part(others),
        },
    )


if __name__ == "__main__":
    run_family("audio", __doc__, lambda folder: {f"digits/{seed}": partial(make, folder, seed) for seed in SEEDS})
