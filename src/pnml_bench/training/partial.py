"""Save and restore an unfinished training: weights, the optimizer's state and number of epochs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save

from pnml.backend.files import atomic_path
from pnml_bench.training.settings import check_same_settings

if TYPE_CHECKING:
    from pathlib import Path

    from pnml_bench.training.settings import Settings
    from pnml_bench.zoo import Network


def partial_path(out: Path) -> Path:
    """Return the file for the unfinished training that will write ``out``."""
    return out.with_name(f"{out.stem}.partial{out.suffix}")


def write_partial(
    path: Path, network: Network, optimizer: torch.optim.Optimizer, *, epoch: int, settings: Settings
) -> None:
    """Write the state after ``epoch`` epochs."""
    tensors = {f"weights.{name}": tensor.contiguous() for name, tensor in network.state_dict().items()}
    for name, parameter in network.named_parameters():
        for kind, value in optimizer.state[parameter].items():
            tensors[f"optimizer.{kind}.{name}"] = value.contiguous()
    with atomic_path(path) as temporary:
        temporary.write_bytes(save(tensors, metadata={**settings, "epochs_done": str(epoch)}))


def read_partial(path: Path, network: Network, optimizer: torch.optim.Optimizer, *, settings: Settings) -> int:
    """Restore the state written by :func:`write_partial` and return the number of epochs done.

    Raises:
        ValueError: the file is from a training with other settings.
    """
    metadata = read_metadata(path)
    check_same_settings(path, metadata, settings)
    tensors = load_file(path)
    network.load_state_dict({name: tensors[f"weights.{name}"] for name in network.state_dict()})
    for name, parameter in network.named_parameters():
        for kind in {key.split(".")[1] for key in tensors if key.startswith("optimizer.")}:
            stored = tensors[f"optimizer.{kind}.{name}"]
            optimizer.state[parameter][kind] = _like(parameter, stored, on_device=optimizer.defaults["fused"])
    return int(metadata["epochs_done"])


def read_metadata(path: Path) -> Settings:
    """Return the metadata of a safetensors file."""
    try:
        with safe_open(path, framework="pt") as file:
            return file.metadata() or {}
    except SafetensorError as error:
        raise ValueError(f"{path} is not a safetensors file ({error}): move it away, or choose another out") from error


def _like(parameter: torch.nn.Parameter, stored: torch.Tensor, *, on_device: bool) -> torch.Tensor:
    """Return a part of an optimizer's state: laid out as its parameter, or the number of steps, where PyTorch wants it.

    A fused optimizer keeps the number of steps on the device, others on the CPU.
    """
    if stored.shape == parameter.shape:
        return torch.empty_like(parameter).copy_(stored)
    return stored.to(parameter.device) if on_device else stored
