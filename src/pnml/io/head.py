"""Read the last linear layer from a file."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
from safetensors import SafetensorError, deserialize

from pnml.backend.read_errors import names_its_file
from pnml.io.pickles import refuse_pickle

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_AXES = {"weight": 2, "bias": 1}
"""The arrays that are read, and how many axes they have; a file may hold others, as that of a detector does."""

_DTYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2"}


@names_its_file
def read_head(path: Path) -> tuple[NDArray[Any], NDArray[Any] | None]:
    """Return ``weight`` (C, M) and ``bias`` (C,) of an ``.npz`` or ``.safetensors`` file; None without a bias."""
    refuse_pickle(path, "tensors")
    if path.suffix not in _READERS:
        raise ValueError(f"{path} is no file of a head: expected one of {', '.join(_READERS)}")
    names, arrays = _READERS[path.suffix](path)
    if "weight" not in arrays:
        raise ValueError(
            f"{path} holds {', '.join(sorted(names)[:8]) or 'nothing'}: expected the last layer's 'weight', of shape "
            "(classes, features), and 'bias'"
        )
    for name, array in arrays.items():
        is_numbers = array.dtype.kind in "fiu" and array.ndim == _AXES[name] and array.size
        if not is_numbers or not np.isfinite(array).all():
            what = f"{array.dtype} of shape {array.shape}" if not is_numbers else "values that are not finite"
            raise ValueError(
                f"{name!r} of {path} holds {what}: expected finite numbers, 'weight' of shape (classes, features) and "
                "'bias' of shape (classes,)"
            )
    weight = arrays["weight"]
    bias = arrays.get("bias")
    if bias is not None and len(bias) != len(weight):
        turned = ": store weight.T" if len(bias) == weight.shape[1] else ""
        raise ValueError(
            f"{path}: bias must have one entry per class, {len(weight)}, the rows of weight, got {len(bias)}{turned}"
        )
    return weight, bias


def _read_safetensors(path: Path) -> tuple[list[str], dict[str, NDArray[Any]]]:
    """Return the names of all arrays, and those that are read."""
    try:
        tensors = dict(deserialize(path.read_bytes()))  # type: ignore[no-untyped-call]
    except SafetensorError as error:
        raise ValueError(f"{path} is no whole safetensors file ({error}): write it again") from error
    return list(tensors), {name: _to_array(path, name, tensors[name]) for name in _AXES if name in tensors}


def _to_array(path: Path, name: str, tensor: dict[str, Any]) -> NDArray[Any]:
    """Return a tensor as NumPy array; bfloat16, which NumPy lacks, is the upper half of a float32."""
    dtype = tensor["dtype"]
    if dtype == "BF16":
        numbers = (np.frombuffer(tensor["data"], "<u2").astype("<u4") << 16).view("<f4")
    elif dtype in _DTYPES:
        numbers = np.frombuffer(tensor["data"], _DTYPES[dtype])
    else:
        raise ValueError(f"{name!r} of {path} holds {dtype} numbers: expected one of {', '.join(_DTYPES)} or BF16")
    return numbers.reshape(tensor["shape"])


def _read_npz(path: Path) -> tuple[list[str], dict[str, NDArray[Any]]]:
    """Return the names of all arrays, and those that are read."""
    try:
        with zipfile.ZipFile(path), np.load(path, allow_pickle=False) as arrays:
            return arrays.files, {name: arrays[name] for name in _AXES if name in arrays.files}
    except (zipfile.BadZipFile, ValueError) as error:
        raise ValueError(
            f"{path} is no whole .npz file of numbers ({error}): write it again with numpy.savez"
        ) from error


_READERS = {".npz": _read_npz, ".safetensors": _read_safetensors}
