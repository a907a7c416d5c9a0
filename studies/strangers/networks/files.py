"""Read the layers of published files: lists of tensors in PyTorch's layout, in the order in which they are called.

Nothing of a file is run: ``torch.load`` reads weights only, HDF5 and ONNX files are read as data.
"""

from __future__ import annotations

import io
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any
from zipfile import ZipFile

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from pathlib import Path

Layers = list[list[Tensor]]
COUNTER = "num_batches_tracked"


def fill(network: nn.Module, layers: Layers) -> None:
    """Copy each layer into the first module that has none yet and whose tensors are of the same shapes, but for ones.

    Layers of the same shapes have to be in the same order; names do not matter.
    """
    left = list(layers)
    for name, module in network.named_modules():
        named = (*module.named_parameters(recurse=False), *module.named_buffers(recurse=False))
        own = [tensor for key, tensor in named if key != COUNTER]
        if not own:
            continue
        fitting = (number for number, layer in enumerate(left) if _sizes(layer) == _sizes(own))
        number = next(fitting, None)
        if number is None:
            raise ValueError(f"the file has no layer like {name!r}, with tensors of {[tuple(t.shape) for t in own]}")
        for mine, theirs in zip(own, left.pop(number), strict=True):
            mine.data.copy_(theirs.reshape(mine.shape))
    if left:
        raise ValueError(f"the network has no place for layers of {[_sizes(layer) for layer in left]}")


def _sizes(layer: list[Tensor]) -> list[list[int]]:
    return [[length for length in tensor.shape if length > 1] for tensor in layer]


def pytorch(path: Path, without: str = "$^") -> Layers:
    """Return the layers of a state dict, but for tensors whose names match ``without``."""
    saved = torch.load(path, map_location="cpu", weights_only=True)
    for key in ("state_dict", "net", "model"):
        saved = saved.get(key, saved)
    layers: dict[str, list[Tensor]] = {}
    for name, tensor in saved.items():
        if not re.search(f"{COUNTER}|{without}", name):
            layers.setdefault(name.replace(".weight_quant", "").rpartition(".")[0], []).append(tensor)
    return list(layers.values())


def lmfrnet(path: Path) -> Layers:
    """Return the layers of LMFRNet, whose file has a second head that is not used."""
    return pytorch(path, r"\.fc\.")


def osi_ai(path: Path) -> Layers:
    """Return the layers of OSI AI's network but its early exit; its batch norms have statistics of four parts."""
    return [
        [tensor.view(-1, len(layer[0])).mean(0) for tensor in layer] if len(layer) == 4 else layer
        for layer in pytorch(path, "_exit|mask")
    ]


def apot(path: Path) -> Layers:
    """Return yhhhli's layers with rounded weights: to -1, 0 and 1 times a learnt number, first and last to 8 bits."""

    def rounded(weight: Tensor, *others: Tensor) -> list[Tensor]:
        if len(others) == 2:  # the widths of activations and of weights
            width, alpha = others
            weight = (weight - weight.mean()) / weight.std() / alpha
            return [weight.clamp(-1, 1).abs().round() * weight.sign() * alpha, width]
        largest = weight.max()
        return [weight if weight.ndim == 1 else (weight / largest * 127).round() / 127 * largest, *others]

    return [rounded(*layer) for layer in pytorch(path)]


def onnx(path: Path) -> Layers:
    """Return the layers of an ONNX file."""
    library = import_module("onnx")
    graph = library.load(path).graph
    tensors = {t.name: torch.tensor(library.numpy_helper.to_array(t)) for t in graph.initializer}
    return [layer for node in graph.node if (layer := [tensors[name] for name in node.input if name in tensors])]


def keras(path: Path) -> Layers:
    """Return the layers of a Keras file."""
    return [[t.movedim((-1, -2), (0, 1)) if t.ndim > 1 else t for t in layer] for layer in _hdf5(path)]


def theano(path: Path) -> Layers:
    """Return the layers of a Keras file for Theano, which turns kernels round."""
    return [[t.flip(2, 3) if t.ndim == 4 else t.mT if t.ndim == 2 else t for t in layer] for layer in _hdf5(path)]


def hls4ml(path: Path) -> Layers:
    """Return the layers of a QKeras file, batch norms multiplied into the convolutions, rounded to 8 bits."""

    def rounded(kernel: Tensor, bias: Tensor, *norm: Tensor) -> list[Tensor]:
        if norm:
            gamma, beta, _, mean, variance = norm
            factor = gamma / (variance + 1e-3).sqrt()
            kernel, bias = kernel * factor.view(-1, 1, 1, 1), (bias - mean) * factor + beta
        return [(32 * tensor).round().clamp(-128, 127) / 32 for tensor in (kernel, bias)]

    return [rounded(*layer) for layer in keras(path)]


def _hdf5(path: Path) -> Layers:
    """Return the layers of a Keras file as they are; those of the newest format are sorted by kind, then by number."""
    try:
        library: Any = import_module("h5py")
    except ImportError as error:
        raise ImportError(f"{path} is read with h5py: pip install h5py") from error
    zipped = path.suffix == ".keras"
    with library.File(io.BytesIO(ZipFile(path).read("model.weights.h5")) if zipped else path) as file:
        if zipped:
            kinds = file["layers"]
            groups = [kinds[name]["vars"].values() for name in sorted(kinds, key=lambda name: (len(name), name))]
        else:
            root = file.get("model_weights", file)
            rows = [root[name] for name in root.attrs["layer_names"]]
            groups = [[row[name] for name in row.attrs["weight_names"]] for row in rows]
        layers = [[torch.tensor(array[()]) for array in group] for group in groups]
    return [layer for layer in layers if layer]
