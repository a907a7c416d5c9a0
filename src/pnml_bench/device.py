"""Where to compute."""

from __future__ import annotations

import torch


def choose_device(name: str) -> torch.device:
    """Return the device of a name, as PyTorch names it; "auto" takes a CUDA device where there is one.

    >>> choose_device("cpu")
    device(type='cpu')
    """
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"PyTorch knows no device {name!r}: give auto, cpu, cuda or cuda:0") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"there is no CUDA device for {name!r} here: give --device cpu")
    return device
