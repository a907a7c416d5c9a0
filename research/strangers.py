"""Networks that others trained and published, for strangers.md; ``read`` returns one that is kept in a folder.

A folder holds ``model.py``, whose ``create()`` makes the network, ``weights.safetensors`` and ``info.json``, which says
whose network it is and on which set it was trained.
"""

from __future__ import annotations

import json
from importlib.util import module_from_spec, spec_from_file_location
from typing import TYPE_CHECKING

from safetensors.torch import load_file
from torch import Tensor, nn

if TYPE_CHECKING:
    from pathlib import Path


class Stranger(nn.Module):
    """A network that takes images from 0 to 1, and normalises them itself."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.network(x)
        return logits

    @staticmethod
    def normalise(images: Tensor) -> Tensor:
        """Return uint8 images as numbers from 0 to 1."""
        return images.float() / 255


def read(folder: Path) -> tuple[Stranger, str]:
    """Return the network of a folder, and the name of its training set."""
    spec = spec_from_file_location(f"stranger_{folder.name}", folder / "model.py")
    if spec is None or spec.loader is None:
        raise FileNotFoundError(f"expected a network's folder with model.py, got {folder}")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    network: nn.Module = module.create()
    network.load_state_dict(load_file(folder / "weights.safetensors"))
    return Stranger(network), str(json.loads((folder / "info.json").read_text(encoding="utf-8"))["ind"])
