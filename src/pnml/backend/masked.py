"""Masked arrays of NumPy: their masked entries hold numbers that nobody vouches for, so none is ever used."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np


def unmasked(values: Any) -> Any:
    """Return ``values``, a masked array without masked entries as a plain one; raise ``ValueError`` for masked entries.

    Lists and tuples are looked into, because NumPy drops the masks of arrays in them.

    >>> unmasked(np.ma.array([1.0, 2.0]))
    array([1., 2.])
    >>> unmasked(np.ma.array([[1.0, 2.0], [3.0, 4.0]], mask=[[False, False], [False, True]]))
    Traceback (most recent call last):
        ...
    ValueError: 1 of 4 entries is masked, the first in row 1, column 1: a masked entry has no value. Leave such ...
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
    if count := int(mask.sum()):
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
