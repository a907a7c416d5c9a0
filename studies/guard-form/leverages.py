"""Leverages of everything that a form of the guard may be made of: computed once, so that forms can be compared later.

Rows are of float64. A layer is given as (n, channels, poolings), or as (n, channels) where there is nothing to pool.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

COORDINATES, SAMPLE = 512, 1024
FEATURE_NOISE = 2.0**-16
VARIANTS = {"": (64, SAMPLE), "ridges16/": (16, SAMPLE), "rows512/": (64, SAMPLE // 2)}  # ridges, sample rows
POOLINGS = {"three": 3, "two": 2}  # mean, maximum and deviation; without deviation
LAYERS = {"four": (1, 3, 5, 7), "between": (0, 2, 4, 6), "eight": tuple(range(8))}


def chosen(which: str, positions: list[int]) -> list[int]:
    """Return which of the recorded layers a form has, each once, given the blocks that they are of."""
    if len(positions) < len(LAYERS["eight"]):
        return list(range(len(positions)))
    return list({positions[number]: number for number in LAYERS[which]}.values())


@dataclass
class Rows:
    """What a network makes of n samples: embeddings (n, M), logits (n, C) and layers."""

    embeddings: Tensor
    logits: Tensor
    layers: list[Tensor]


def strided(x: Tensor, most: int) -> Tensor:
    """Return at most so many columns, evenly strided."""
    return x[:, :: math.ceil(x.shape[1] / most)]


def unit(x: Tensor) -> Tensor:
    return torch.nn.functional.normalize(x, dim=1, eps=1e-30)


def left_out(h: Tensor, shares: Tensor) -> Tensor:
    """Return the leverages of training rows as they would be without each row."""
    spread = (shares * h).clamp(max=1 - 1e-12)
    return shares * spread / (1 - spread)


def measure(
    train: Tensor, new: Tensor, classes: Tensor | None = None, new_classes: Tensor | None = None, prior: float = 1.0
) -> dict[str, np.ndarray]:
    """Return the leverages of some training rows, left out, and after them those of new rows, for every variant."""
    train, new = train.double(), new.double()
    if classes is None or new_classes is None:
        classes, new_classes = (torch.zeros(len(x), dtype=torch.long, device=x.device) for x in (train, new))
    total, counts = len(train), torch.bincount(classes, minlength=int(new_classes.max()) + 1).double()
    sums = torch.zeros(len(counts), train.shape[1], dtype=train.dtype, device=train.device)
    sums.index_add_(0, classes, train)
    means = (sums + prior * train.mean(dim=0)) / (counts + prior).clamp(min=1e-3)[:, None]
    shares = (counts + prior + prior / (total - 1)) / (counts + prior - 1).clamp(min=1e-3)
    d = train - means[classes]
    values, vectors = torch.linalg.eigh(d.T @ d)
    values = values.flip(0).clamp(min=0)
    vectors = vectors.flip(1)
    squares = (d[:SAMPLE] @ vectors).square()
    of_new = ((new - means[new_classes]) @ vectors).square()
    lowest, highest = FEATURE_NOISE**2 * max(float(train.square().sum()), total), 10 * float(values[0])
    answer = {}
    for name, (ridges, sample) in VARIANTS.items():
        candidates = torch.logspace(math.log10(lowest), math.log10(max(highest, 1.001 * lowest)), ridges).to(train)
        inverse = 1 / (values[:, None] + candidates)
        some = shares[classes[:sample], None]
        strange = left_out(squares[:sample] @ inverse, some).mean(dim=0)
        best = inverse[:, torch.argmin(total * strange - inverse.log().sum(dim=0))]
        h = torch.cat([left_out(squares @ best, shares[classes[:SAMPLE]]), of_new @ best])
        answer[name] = h.float().cpu().numpy()
    return answer


def of_layers(
    both_sides: tuple[Rows, Rows], logs: list[Tensor], positions: list[int], *, input_layer: bool
) -> dict[str, np.ndarray]:
    """Return what the layers and the lengths give, given logarithms of the lengths of embeddings."""
    answer: dict[str, np.ndarray] = {}
    for pooling, count in POOLINGS.items():
        layers = [
            [(layer[:, :, :count] if layer.ndim == 3 else layer).flatten(1).double() for layer in rows.layers]
            for rows in both_sides
        ]
        columns: dict[str, list[np.ndarray]] = {name: [] for name in VARIANTS}
        for number, (of_train, of_new) in enumerate(zip(*layers, strict=True)):
            scaled = not (input_layer and number == 0)
            pair = (unit(of_train), unit(of_new)) if scaled else (of_train, of_new)
            for variant, h in measure(*pair).items():
                columns[variant].append(h)
        kept = list(VARIANTS) if count == 3 else [""]
        answer |= {f"{pooling}/{variant}layers": np.stack(columns[variant], axis=1) for variant in kept}
        norms = [torch.stack([layer.norm(dim=1).clamp(min=1e-12).log() for layer in side], dim=1) for side in layers]
        for which in LAYERS:
            some = [side[:, chosen(which, positions)] for side in norms]
            both = [torch.cat(side, dim=1) for side in zip(logs, some, strict=True)]
            for name, sides in (("all", both), ("layers", some)):
                of_lengths = measure(sides[0], sides[1])
                kept_here = kept if (which, name) == ("four", "all") else [""]
                answer |= {f"{pooling}/{variant}{which}/{name}": of_lengths[variant] for variant in kept_here}
    return answer


def collect(
    train: Rows, new: Rows, weight: Tensor, bias: Tensor, positions: list[int], *, input_layer: bool = False
) -> dict[str, np.ndarray]:
    """Return what forms are made of: arrays whose rows are ``SAMPLE`` training rows, and after them the new ones.

    The training rows come in a random order. ``positions`` are the blocks that layers are of. With ``input_layer`` the
    first layer is the input, which is not scaled.
    """
    answer: dict[str, np.ndarray] = {"positions": np.array(positions)}
    classes, new_classes = train.logits.argmax(dim=1), new.logits.argmax(dim=1)
    directions = [unit(rows.embeddings.double()) for rows in (train, new)]
    few = [strided(u, COORDINATES) for u in directions]
    for prior, suffix in ((1.0, ""), (0.0, "prior0/")):
        parts = {"e": measure(few[0], few[1], classes, new_classes, prior)}
        if prior:
            parts["0"] = measure(few[0], few[1])
        for part, variants in parts.items():
            for variant, h in variants.items():
                answer[f"{suffix}{variant}{part}"] = h
    logs = [rows.embeddings.double().norm(dim=1, keepdim=True).clamp(min=1e-12).log() for rows in (train, new)]
    answer |= {f"{variant}length": h for variant, h in measure(logs[0], logs[1]).items()}
    if train.layers:
        answer |= of_layers((train, new), logs, positions, input_layer=input_layer)
    mean_norm = float(train.embeddings.double().norm(dim=1).mean())
    heads = [(u @ weight.double().T + bias.double() / mean_norm) for u in directions]
    logits = torch.cat([train.logits[:SAMPLE], new.logits]).double()
    kind = torch.float32 if len(bias) <= 16 else torch.float16
    answer["directions"] = torch.cat([heads[0][:SAMPLE], heads[1]]).to(kind).cpu().numpy()
    answer["mean_norm"] = np.array(mean_norm)
    answer["msp"] = (1 - logits.softmax(dim=1).amax(dim=1)).float().cpu().numpy()
    answer["energy"] = (-logits.logsumexp(dim=1)).float().cpu().numpy()
    return answer
