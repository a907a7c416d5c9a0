"""Check the arguments of a training, and save and restore an unfinished one, which another must not resume."""

from __future__ import annotations

import hashlib
from pathlib import PurePath
from typing import TYPE_CHECKING, Literal, TypeAlias

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save

from pnml.backend.files import atomic_path
from pnml_bench.training.outliers import TRANSFORMED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pnml_bench.data import ImageSet
    from pnml_bench.training.recipes import Recipe
    from pnml_bench.zoo import Network


OutlierSet: TypeAlias = "ImageSet | Literal['transformed']"
Settings = dict[str, str]


def check_arguments(
    recipe: Recipe, out: Path, seed: int, start: Network | None, outliers: Sequence[OutlierSet]
) -> None:
    """Raise ``ValueError`` if the arguments of a training are invalid or inconsistent."""
    if out.suffix != ".safetensors":
        raise ValueError(f"expected out to be a .safetensors file, got {out}")
    if seed < 0:
        raise ValueError(f"expected seed to be at least 0, got {seed}")
    if start is not None and (start.architecture, start.head.out_features) != (recipe.model, recipe.num_classes):
        raise ValueError(
            f"expected start to be a {recipe.model} with {recipe.num_classes} classes, as in the recipe, got a "
            f"{start.architecture} with {start.head.out_features}"
        )
    for one in outliers:
        if isinstance(one, str) and one != TRANSFORMED:
            raise ValueError(
                f"expected outliers to be image sets or {TRANSFORMED!r}, got {one!r}: load it with pnml_bench.data.load"
            )
    if recipe.penalty is None:
        if outliers:
            raise ValueError("expected no outliers for a recipe without tuning: omit them, or pass tune= to recipe")
    elif start is None or not outliers:
        raise ValueError(
            f"{recipe.penalty.name} tuning needs start=, a trained network, and outliers=, a list of image sets or "
            f"{TRANSFORMED!r} for transformed training images"
        )


def training_settings(
    recipe: Recipe,
    train_set: ImageSet,
    test_set: ImageSet,
    *,
    seed: int,
    start: Network | None,
    outliers: Sequence[OutlierSet],
) -> Settings:
    """Return the settings that identify a training, stored as metadata of its files."""
    names = [one if isinstance(one, str) else f"{PurePath(one.name).name} ({len(one)} images)" for one in outliers]
    return {
        "name": recipe.name,
        "dataset": recipe.dataset,
        "recipe": recipe.to_json(),
        "epochs": str(recipe.epochs),
        "seed": str(seed),
        "train_images": str(len(train_set)),
        "test_images": str(len(test_set)),
        "outliers": ", ".join(names) or "none",
        "start": "fresh weights" if start is None else f"weights with sha256 {_digest(start)}",
    }


def check_same_settings(path: Path, metadata: Settings, settings: Settings) -> None:
    """Raise ``ValueError`` if a file is from a training with other settings: it must not be resumed or overwritten."""
    differing = [
        f"{key} is {metadata.get(key, 'missing')} there, {value} here"
        for key, value in settings.items()
        if metadata.get(key) != value
    ]
    if differing:
        raise ValueError(
            f"{path} is from another training ({'; '.join(differing)}): choose another out, or move that file away"
        )


def _digest(network: Network) -> str:
    sha256 = hashlib.sha256()
    for tensor in network.state_dict().values():
        sha256.update(tensor.cpu().contiguous().numpy().tobytes())
    return sha256.hexdigest()


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
