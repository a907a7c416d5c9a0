"""Interrupted trainings on disk: weights, momentum, and how far they came."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file

from pnml.backend.files import atomic_path
from pnml.bench.training.settings import refuse_others

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.bench.training.settings import Settings
    from pnml.bench.zoo import Network

_MOMENTUM = "momentum_buffer"  # as PyTorch calls it


def partial_path(out: Path) -> Path:
    """Where the training that will write ``out`` keeps what it has so far."""
    return out.with_name(f"{out.stem}.partial{out.suffix}")


def write_partial(
    path: Path, network: Network, optimizer: torch.optim.Optimizer, *, epoch: int, settings: Settings
) -> None:
    """Write the state after ``epoch`` passes."""
    tensors = {f"weights.{name}": tensor.contiguous() for name, tensor in network.state_dict().items()}
    for name, parameter in network.named_parameters():
        tensors[f"momentum.{name}"] = optimizer.state[parameter][_MOMENTUM].contiguous()
    with atomic_path(path) as fresh:
        save_file(tensors, fresh, metadata={**settings, "epochs_done": str(epoch)})


def read_partial(path: Path, network: Network, optimizer: torch.optim.Optimizer, *, settings: Settings) -> int:
    """Restore what :func:`write_partial` wrote, and give the number of passes done.

    Raises:
        ValueError: the file comes from another training.
    """
    metadata = read_metadata(path)
    refuse_others(path, metadata, settings)
    tensors = load_file(path)
    network.load_state_dict({name: tensors[f"weights.{name}"] for name in network.state_dict()})
    for name, parameter in network.named_parameters():
        optimizer.state[parameter][_MOMENTUM] = torch.empty_like(parameter).copy_(tensors[f"momentum.{name}"])
    return int(metadata["epochs_done"])


def read_metadata(path: Path) -> Settings:
    """What a safetensors file says about itself."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file ({error}): move it away, or choose another out") from error
