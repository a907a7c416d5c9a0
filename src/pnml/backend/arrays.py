"""Arrays of any library: their namespace and precision, and conversions between libraries."""

from __future__ import annotations

import sys
from typing import Any

import array_api_compat as compat
import array_api_compat.numpy as numpy_namespace
import numpy as np

Array = Any
"""An array of NumPy, PyTorch, CuPy, JAX or any other library that follows the array API standard."""


def namespace(array: Array) -> Any:
    """Return the array API namespace of an array; faster than asking array-api-compat, for the arrays served most."""
    return numpy_namespace if type(array) is np.ndarray else compat.array_namespace(array)


def as_array(values: Array) -> Array:
    """Return ``values`` as they are if they are an array, and as a NumPy array otherwise; refuse masked entries."""
    values = unmasked(values)
    return values if isinstance(values, np.ndarray) or compat.is_array_api_obj(values) else np.asarray(values)


def unmasked(values: Any) -> Any:
    """Return ``values``, a masked array without masked entries as a plain one; raise ``ValueError`` for masked entries.

    Lists and tuples are looked into, because NumPy drops the masks of arrays in them.
    """
    masked_arrays = sys.modules.get("numpy.ma")  # whoever has a masked array has imported it
    if masked_arrays is None:
        return values
    if isinstance(values, list | tuple):
        for one in values:
            if isinstance(one, masked_arrays.MaskedArray):
                unmasked(one)
        return values
    if not isinstance(values, masked_arrays.MaskedArray):
        return values
    mask = masked_arrays.getmaskarray(values)
    count = int(mask.sum())
    if count:
        are = "is" if count == 1 else "are"
        raise ValueError(
            f"{count:,} of {mask.size:,} entries {are} masked, the first in {_place(mask)}: a masked entry has no "
            "value. Leave such samples out, or fill them in: x.filled(value)"
        )
    return values.data


def _place(mask: np.ndarray[Any, Any]) -> str:
    first = np.argwhere(mask)[0].tolist()
    names = ["row", "column", *(f"axis {axis}" for axis in range(2, len(first)))]
    return ", ".join(f"{name} {number}" for name, number in zip(names, first, strict=False))


def is_real_floating(array: Array) -> bool:
    """Return whether the elements are real floating-point numbers."""
    return _epsilon(array) is not None


def precision(array: Array) -> float:
    """Return the machine epsilon of the array's own dtype, which must be a real floating one."""
    eps = _epsilon(array)
    return float(namespace(array).finfo(array.dtype).eps) if eps is None else eps


_EPSILONS: dict[Any, float | None] = {}  # of dtypes met so far: asking a library takes longer than scoring a row


def _epsilon(array: Array) -> float | None:
    """Return the machine epsilon of the array's dtype, None if it is not a real floating one."""
    dtype = array.dtype
    key = type(dtype), dtype  # dtypes of some libraries refuse to be compared with those of others
    if key not in _EPSILONS:
        xp = namespace(array)
        _EPSILONS[key] = float(xp.finfo(dtype).eps) if xp.isdtype(dtype, "real floating") else None
    return _EPSILONS[key]


def working_dtype(xp: Any, *arrays: Array) -> Any:
    """Return the dtype to compute in: float64 as soon as one array has it, otherwise float32 (never half)."""
    for array in arrays:
        if precision(array) < 1e-12:
            return xp.float64
    return xp.float32


def has_float64(array: Array) -> bool:
    """Return whether the array's library and device compute in float64 (JAX by default and Apple's MPS do not)."""
    if compat.is_jax_array(array):
        return bool(namespace(array).asarray(0.0).dtype == np.float64)
    return not (compat.is_torch_array(array) and array.device.type == "mps")


def is_remote(array: Array) -> bool:
    """Return whether the array lies on a device that works by itself: to look at a value is to wait for it."""
    if type(array) is np.ndarray:
        return False
    if compat.is_torch_array(array):
        return bool(array.device.type != "cpu")
    return bool(compat.is_cupy_array(array))


def to_numpy(array: Array, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    """Copy an array of any library and device into a NumPy array of the given dtype, its own when None.

    Raise ``ValueError`` for masked entries.
    """
    array = unmasked(array)
    if compat.is_torch_array(array):
        array = array.detach().cpu()
        if is_real_floating(array):
            array = array.double()
        array = array.numpy()
    elif compat.is_cupy_array(array):  # pragma: no cover - needs a CUDA device
        array = array.get()
    elif not (isinstance(array, np.ndarray) or compat.is_jax_array(array)) and hasattr(array, "__dlpack__"):
        array = np.from_dlpack(array)
    return np.array(array, dtype=dtype)


def is_recorded(tensor: Any) -> bool:
    """Return whether PyTorch records what is computed from a tensor, for gradients or for a graph."""
    import torch

    return (tensor.requires_grad and torch.is_grad_enabled()) or is_traced()


def is_traced() -> bool:
    """Return whether PyTorch is recording a graph of what is called here, in which no value can be looked at.

    ``torch.compiler.is_compiling`` is true in all threads while one of them compiles, whatever they do.
    """
    torch = sys.modules.get("torch")
    if torch is None:
        return False
    if torch.compiler.is_dynamo_compiling() or torch.jit.is_tracing():
        return True
    exporting = getattr(torch.compiler, "is_exporting", torch.compiler.is_compiling)  # the older name
    return bool(exporting())


def at_least(x: Array, smallest: float) -> Array:
    """Return an array in which every number below the smallest is replaced by it; what is no number stays."""
    if isinstance(x, np.ndarray):
        return np.maximum(x, smallest)  # in a tenth of the time of clip, which matters for one row
    if compat.is_torch_array(x):
        return x.clamp(min=smallest)  # clip of older releases of compat looks at values
    return namespace(x).clip(x, smallest, None)


def at_most(x: Array, largest: float) -> Array:
    """Return an array in which every number above the largest is replaced by it; what is no number stays."""
    if isinstance(x, np.ndarray):
        return np.minimum(x, largest)
    return x.clamp(max=largest) if compat.is_torch_array(x) else namespace(x).clip(x, None, largest)


def side_by_side(columns: list[Array]) -> Array:
    """Return columns (n,) as one array (n, columns)."""
    first = columns[0]
    if len(columns) == 1:
        return first[:, None]
    if not isinstance(first, np.ndarray):
        return namespace(first).stack(columns, axis=1)
    joined = np.empty((len(first), len(columns)), dtype=first.dtype)  # in a tenth of the time of stack, for one row
    for number, column in enumerate(columns):
        joined[:, number] = column
    return joined


def detached(array: Array) -> Array:
    """Return the array without its autograd history, if its library keeps one."""
    return array.detach() if compat.is_torch_array(array) else array


def as_numpy_view(array: Array) -> Array:
    """Return an array in host memory as NumPy sees it, without copying where possible.

    All work on the host is done by NumPy: two libraries with threads of their own get into each other's way.
    """
    if compat.is_torch_array(array):
        import torch

        array = array.detach() if array.requires_grad else array
        return (array if array.dtype != torch.bfloat16 else array.float()).numpy()  # NumPy has no bfloat16
    return array if isinstance(array, np.ndarray) else to_numpy(array, None)


def to_compute(array: Array) -> Array:
    """Return the array to compute with: a NumPy view on the host, the array itself on a GPU or under autograd."""
    if isinstance(array, np.ndarray):
        return array
    if compat.is_torch_array(array):
        if array.is_cpu:
            return array if is_recorded(array) else as_numpy_view(array)
        return as_numpy_view(array.cpu()) if array.is_mps else array  # Apple's MPS has no float64
    return array if compat.is_cupy_array(array) else as_numpy_view(array)


def like(reference: Array, values: Any, dtype: Any = None) -> Array:
    """Return ``values`` in the library and on the device of ``reference``, in a dtype of that library."""
    if dtype is None and isinstance(values, np.ndarray) and compat.is_torch_array(reference):
        import torch

        converted = torch.from_numpy(values)
        return converted if reference.is_cpu else converted.to(reference.device)
    return namespace(reference).asarray(values, dtype=dtype, device=compat.device(reference))


class DeviceConstants:
    """NumPy arrays in the library, on the device and in the dtype of the arrays they are used with; copies are kept."""

    def __init__(self, *values: np.ndarray[Any, Any]) -> None:
        self._values = values
        self._copies: dict[tuple[Any, ...], tuple[Array, ...]] = {}

    def to(self, x: Array, dtype: Any = None) -> tuple[Array, ...]:
        """Return the arrays in the library and on the device of ``x``, in its dtype or the one given."""
        dtype = x.dtype if dtype is None else dtype
        key = type(x), compat.device(x), dtype
        if key not in self._copies:
            self._copies[key] = tuple(like(x, value, dtype) for value in self._values)
        return self._copies[key]

    def __getstate__(self) -> dict[str, Any]:
        return {"_values": self._values, "_copies": {}}
