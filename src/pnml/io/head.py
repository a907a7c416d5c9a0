"""The last linear layer in a file."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray


def read_head(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Read ``weight`` (C, M) and ``bias`` (C,) from an ``.npz`` or ``.safetensors`` file; None where it has no bias.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     np.savez(Path(folder) / "head.npz", weight=np.zeros((3, 8)), bias=np.zeros(3))
    ...     weight, bias = read_head(Path(folder) / "head.npz")
    >>> weight.shape, bias.shape
    ((3, 8), (3,))
    """
    arrays = _arrays(path)
    if "weight" not in arrays:
        raise ValueError(
            f"{path} holds {', '.join(sorted(arrays)[:8]) or 'nothing'}: expected the last layer's 'weight', of shape "
            "(classes, features), and 'bias'"
        )
    return arrays["weight"], arrays.get("bias")


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    if path.suffix == ".safetensors":
        return _safetensors(path)
    if path.suffix == ".npz":
        return _npz(path)
    raise ValueError(f"{path} is no file of a head: expected .npz or .safetensors")


def _safetensors(path: Path) -> dict[str, NDArray[Any]]:
    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise ValueError(f"{path} is no whole safetensors file ({error}): write it again") from error
    except TypeError as error:  # bfloat16
        raise ValueError(f"{path} holds numbers that NumPy does not have ({error}): write them as float32") from error


def _npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (zipfile.BadZipFile, ValueError) as error:
        raise ValueError(
            f"{path} is no whole .npz file of numbers ({error}): write it again with numpy.savez"
        ) from error
