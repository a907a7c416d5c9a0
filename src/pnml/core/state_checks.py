"""Checks of stored state: which arrays and entries it must hold, of which shapes and kinds."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    Arrays = dict[str, np.ndarray[Any, Any]]
    Shape = tuple[int, ...]
    Rules = dict[str, tuple[Callable[[Any], bool], str]]


def length_of(arrays: Arrays, name: str, dimensions: int, axis: int = 0) -> int:
    """Return the length of an array that must have ``dimensions``, along one of them."""
    if name not in arrays:
        raise ValueError(f"the array {name!r} is missing")
    if arrays[name].ndim != dimensions:
        raise ValueError(f"the array {name!r} has shape {arrays[name].shape}, expected {dimensions} dimensions")
    return int(arrays[name].shape[axis])


def check_arrays(arrays: Arrays, expected: dict[str, tuple[str, Shape]]) -> None:
    """Raise ``ValueError`` unless the arrays have the expected names, dtypes and shapes, and finite numbers."""
    for name in sorted({*arrays, *expected}):
        if name not in arrays:
            raise ValueError(f"the array {name!r} is missing")
        if name not in expected:
            raise ValueError(f"the array {name!r} is not known")
        array, (dtype, shape) = arrays[name], expected[name]
        if (array.dtype, array.shape) != (np.dtype(dtype), shape):
            found = f"{array.dtype} of shape {array.shape}"
            raise ValueError(f"the array {name!r} holds {found}, expected {dtype} of shape {shape}")
        if not np.isfinite(array).all():
            raise ValueError(f"the array {name!r} holds numbers that are not finite")


def check_range(found: np.ndarray[Any, Any], classes: int, name: str) -> None:
    """Raise ``ValueError`` unless an array holds numbers of classes."""
    if len(found) and not 0 <= found.min() <= found.max() < classes:
        raise ValueError(f"the array {name!r} holds {found.min()} to {found.max()}, expected 0 to {classes - 1}")


def check_info(info: Any, rules: Rules, needed: set[str], *, closed: bool = False) -> None:
    """Raise ``ValueError`` unless entries have values of their kinds, and those needed are there.

    Args:
        info: the entries.
        rules: by name, what a value must fulfil, and in words what is expected.
        needed: names that must be there.
        closed: refuse names without a rule.
    """
    if not isinstance(info, dict):
        raise ValueError(f"expected names with values, got {info!r}")  # noqa: TRY004 - what a file holds
    for name in sorted(needed - info.keys()):
        raise ValueError(f"the entry {name!r} is missing")
    for name, value in info.items():
        if name in rules and not rules[name][0](value):
            raise ValueError(f"the entry {name!r} is {value!r}, expected {rules[name][1]}")
        if closed and name not in rules:
            raise ValueError(f"the entry {name!r} is not known")


def is_number(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= sys.float_info.max


def is_count(value: Any) -> bool:
    """Return whether a value is a whole number, not negative."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 63


def is_share(value: Any) -> bool:
    """Return whether a value is a number between 0 and 1."""
    return is_number(value) and 0 < value < 1


def is_text(value: Any) -> bool:
    """Return whether a value is text."""
    return isinstance(value, str)


def are_texts(value: Any) -> bool:
    """Return whether a value is a list of texts."""
    return isinstance(value, list | tuple) and all(isinstance(one, str) for one in value)


def is_interval(value: Any) -> bool:
    """Return whether a value is two numbers, ascending."""
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(is_number, value)) and value[0] <= value[1]
