"""Values as JSON holds them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, is_dataclass
from os import PathLike
from typing import Any

import numpy as np


def as_json(value: Any) -> Any:
    """Return a value as JSON holds it: paths as text, and numbers that are not finite as null.

    >>> from pathlib import PurePosixPath
    >>> as_json({"out": PurePosixPath("a/b.csv"), "threshold": np.float64("inf"), "rows": np.arange(2)})
    {'out': 'a/b.csv', 'threshold': None, 'rows': [0, 1]}
    """
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if is_dataclass(value) and not isinstance(value, type):
        value = asdict(value)
    if isinstance(value, Mapping):
        return {str(name): as_json(one) for name, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [as_json(one) for one in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if value is None or isinstance(value, str | int | float | bool):
        return value
    return str(value) if isinstance(value, PathLike) else repr(value)
