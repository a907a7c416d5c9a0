"""Arrays of any library: which one it is, how precise it is, and how to bring it home to NumPy."""

from __future__ import annotations

from typing import Any

import array_api_compat as compat
import numpy as np

Array = Any
"""An array of NumPy, PyTorch, CuPy, JAX or any other library that follows the array API standard."""


def as_array(values: Array) -> Array:
    """Return ``values`` as they are if they are an array, and as a NumPy array otherwise."""
    return values if compat.is_array_api_obj(values) else np.asarray(values)


def is_real_floating(array: Array) -> bool:
    """Tell whether the elements are real floating-point numbers."""
    return bool(compat.array_namespace(array).isdtype(array.dtype, "real floating"))


def precision(array: Array) -> float:
    """Return the machine epsilon of the array's own dtype.

    >>> precision(np.zeros(1, dtype=np.float32))
    1.1920928955078125e-07
    """
    return float(compat.array_namespace(array).finfo(array.dtype).eps)


def working_dtype(xp: Any, *arrays: Array) -> Any:
    """Return the dtype to compute in: float64 as soon as one array has it, otherwise float32 (never half)."""
    return xp.float64 if any(precision(a) < 1e-12 for a in arrays) else xp.float32


def has_float64(array: Array) -> bool:
    """Tell whether the array's library and device compute in float64 (JAX by default and Apple's MPS do not)."""
    if compat.is_jax_array(array):
        return bool(compat.array_namespace(array).asarray(0.0).dtype == np.float64)
    return not (compat.is_torch_array(array) and array.device.type == "mps")


def is_remote(array: Array) -> bool:
    """Tell whether the array lies on a device that works by itself: to look at a value is to wait for it."""
    if compat.is_torch_array(array):
        return bool(array.device.type != "cpu")
    return bool(compat.is_cupy_array(array))


def to_numpy(array: Array, dtype: Any = np.float64) -> np.ndarray[Any, Any]:
    """Copy an array of any library and device into a NumPy array of the given dtype."""
    if compat.is_torch_array(array):
        array = array.detach().cpu()
        if is_real_floating(array):
            array = array.double()
        array = array.numpy()
    elif compat.is_cupy_array(array):  # pragma: no cover - needs a CUDA device
        array = array.get()
    elif not compat.is_jax_array(array) and hasattr(array, "__dlpack__"):
        array = np.from_dlpack(array)
    return np.array(array, dtype=dtype)


def detached(array: Array) -> Array:
    """Return the array without its autograd history, if its library keeps one."""
    return array.detach() if compat.is_torch_array(array) else array


def like(reference: Array, values: np.ndarray[Any, Any], dtype: Any = None) -> Array:
    """Put NumPy ``values`` into the library and onto the device of ``reference``."""
    xp = compat.array_namespace(reference)
    return xp.asarray(values, dtype=dtype, device=compat.device(reference))


class DeviceConstants:
    """NumPy arrays that serve any library: put beside the data they meet once, and kept there.

    >>> constants = DeviceConstants(np.eye(2), np.ones(2))
    >>> identity, ones = constants.to(np.zeros(1, dtype=np.float32))
    >>> identity.dtype, ones.dtype
    (dtype('float32'), dtype('float32'))
    """

    def __init__(self, *values: np.ndarray[Any, Any]) -> None:
        self._values = values
        self._copies: dict[tuple[str, str, str], tuple[Array, ...]] = {}

    def to(self, x: Array, dtype: Any = None) -> tuple[Array, ...]:
        """Return the arrays in the library and on the device of ``x``, in its dtype or the one given."""
        dtype = x.dtype if dtype is None else dtype
        key = (compat.array_namespace(x).__name__, str(compat.device(x)), str(dtype))
        if key not in self._copies:
            self._copies[key] = tuple(like(x, value, dtype) for value in self._values)
        return self._copies[key]
