"""The last linear layer in a file."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, deserialize

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


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
        return {name: _numbers(path, name, stored) for name, stored in deserialize(path.read_bytes())}  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise ValueError(f"{path} is no whole safetensors file ({error}): write it again") from error


def _numbers(path: Path, name: str, stored: dict[str, Any]) -> NDArray[Any]:
    """The tensor as NumPy has it; bfloat16, which it does not have, is the upper half of a float32."""
    kind, data = stored["dtype"], stored["data"]
    if kind == "BF16":
        numbers = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    elif kind in _DTYPES:
        numbers = np.frombuffer(data, _DTYPES[kind])
    else:
        raise ValueError(f"{name!r} of {path} holds {kind} numbers: expected one of {', '.join(_DTYPES)} or BF16")
    return numbers.reshape(stored["shape"])


def _npz(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as arrays:
            return {name: arrays[name] for name in arrays.files}
    except (zipfile.BadZipFile, ValueError) as error:
        raise ValueError(
            f"{path} is no whole .npz file of numbers ({error}): write it again with numpy.savez"
        ) from error
