"""Load networks from files, and save them."""

from __future__ import annotations

import json
import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save as to_bytes
from torch import Tensor

from pnml.backend.files import atomic_path
from pnml_bench.zoo.architectures import ARCHITECTURES, create
from pnml_bench.zoo.checkpoints import CHECKPOINTS, locate
from pnml_bench.zoo.network import Normalise

if TYPE_CHECKING:
    from pnml_bench.zoo.network import Network

_OPTIONAL = "num_batches_tracked"  # of batch norms; unused in evaluation and absent from some published files
_HEADS = ("fc.weight", "linear.weight")


def load(
    name_or_path: str | os.PathLike[str], *, architecture: str | None = None, num_classes: int | None = None
) -> Network:
    """Load a trained network, in evaluation mode and on the CPU.

    Args:
        name_or_path: a name in ``CHECKPOINTS``, found in the folders of the environment variable ``PNML_WEIGHTS``, in
            the cache or by download; or a ``.safetensors``, ``.pt`` or ``.pth`` file.
        architecture: the file's architecture; not needed for names and for files written by :func:`save`.
        num_classes: the file's number of classes; inferred if not given.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save(create("resnet-20", 10), Path(folder) / "mine.safetensors")
    ...     load(Path(folder) / "mine.safetensors").architecture
    'resnet-20'
    """
    checkpoint = CHECKPOINTS.get(os.fspath(name_or_path))
    if checkpoint is None:
        path = Path(name_or_path)
        if not path.is_file():
            raise FileNotFoundError(
                f"{os.fspath(name_or_path)!r} is neither a file nor a known checkpoint ({', '.join(CHECKPOINTS)}): "
                "pnml train trains a network, and --weights takes its file"
            )
    else:
        path = locate(checkpoint)
        if architecture not in {None, checkpoint.architecture} or num_classes not in {None, checkpoint.num_classes}:
            raise ValueError(
                f"{checkpoint.name} is a {checkpoint.architecture} with {checkpoint.num_classes} classes, not "
                f"architecture={architecture!r} with num_classes={num_classes}"
            )
        architecture, num_classes = checkpoint.architecture, checkpoint.num_classes

    state, metadata = _read(path)
    architecture = architecture or metadata.get("architecture")
    if architecture is None:
        raise ValueError(
            f"{path} does not name its architecture: pass architecture=, one of {', '.join(ARCHITECTURES)}"
        )
    network = create(architecture, num_classes or _count_classes(state, path))
    _check(state, network, path)
    network.load_state_dict(state)
    if checkpoint is not None:
        network.normalise = Normalise(checkpoint.mean, checkpoint.std)
    elif "mean" in metadata:
        network.normalise = Normalise(json.loads(metadata["mean"]), json.loads(metadata["std"]))
    return network.eval()


def round_to_float16(network: Network) -> None:
    """Round the weights of layers to numbers that float16 has, in place; those of batch norms stay as they are."""
    for tensor in network.state_dict().values():
        if _is_matrix(tensor):
            tensor.copy_(tensor.half())


def save(
    network: Network, path: str | os.PathLike[str], *, extra: dict[str, str] | None = None, float16: bool = False
) -> None:
    """Write a network of :func:`create` to a ``.safetensors`` file, with its architecture, for :func:`load`.

    Args:
        network: the network.
        path: the file.
        extra: added to the file's metadata.
        float16: store the weights of layers in float16, which is exact after :func:`round_to_float16`.
    """
    if network.architecture is None:
        raise ValueError("expected a network of zoo.create or zoo.load, which set its architecture")
    metadata = {
        **(extra or {}),
        "architecture": network.architecture,
        "mean": json.dumps(network.normalise.mean.flatten().tolist()),
        "std": json.dumps(network.normalise.std.flatten().tolist()),
    }
    state = {name: tensor.contiguous() for name, tensor in network.state_dict().items()}
    if float16:
        state = {name: tensor.half() if _is_matrix(tensor) else tensor for name, tensor in state.items()}
    with atomic_path(path) as partial:
        partial.write_bytes(to_bytes(state, metadata=metadata))


def _is_matrix(tensor: Tensor) -> bool:
    return tensor.ndim > 1


def _read(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Return the tensors of a file and its metadata."""
    if path.suffix == ".safetensors":
        try:
            with safe_open(path, framework="pt") as file:
                return {name: file.get_tensor(name) for name in file.keys()}, file.metadata() or {}  # noqa: SIM118 (not a mapping)
        except SafetensorError as error:
            raise ValueError(f"{path} is not a safetensors file: {error}") from error
    if path.suffix not in {".pt", ".pth"}:
        raise ValueError(f"{path} is not a weights file: expected .safetensors, .pt or .pth")
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise ValueError(f"{path} cannot be read as a state dict of tensors: {error}") from error
    if not isinstance(state, Mapping) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ValueError(f"{path} is not a state dict: expected a mapping from names to tensors only")
    return dict(state), {}


def _count_classes(state: dict[str, Tensor], path: Path) -> int:
    """Return the number of rows of the head, by one of the names that it has in networks of the zoo."""
    heads = [tensor for name in _HEADS if (tensor := state.get(name)) is not None and tensor.ndim == 2]
    if len(heads) != 1:
        raise ValueError(
            f"{path} is not a network of the zoo: expected one matrix named {' or '.join(_HEADS)}, found {len(heads)}"
        )
    return len(heads[0])


def _check(state: dict[str, Tensor], network: Network, path: Path) -> None:
    """Raise ``ValueError`` if names or shapes differ from those of the network."""
    expected = {name: tuple(tensor.shape) for name, tensor in network.state_dict().items()}
    missing = [name for name in expected if name not in state and not name.endswith(_OPTIONAL)]
    unknown = [name for name in state if name not in expected]
    shapes = [
        f"{name} {tuple(tensor.shape)} instead of {expected[name]}"
        for name, tensor in state.items()
        if name in expected and tuple(tensor.shape) != expected[name]
    ]
    problems = [
        f"{len(found)} {kind} ({', '.join(found[:3])}{', ...' if len(found) > 3 else ''})"
        for kind, found in (("missing", missing), ("unknown", unknown), ("of other shape", shapes))
        if found
    ]
    if problems:
        classes = network.head.out_features
        raise ValueError(
            f"{path} is not a {network.architecture} with {classes} classes; tensors: {'; '.join(problems)}"
        )
