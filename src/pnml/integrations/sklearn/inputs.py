"""Rows as they come in: what scikit-learn would use or refuse without a word about the cause is refused before."""

from __future__ import annotations

from typing import Any

import numpy as np

from pnml.backend.arrays import unmasked


def checked_rows(X: Any) -> Any:
    """Return rows as they are; raise ``ValueError`` for masked entries, and for a column of vectors of a data frame.

    scikit-learn uses what is below a mask, and says of a column of vectors that a sequence cannot be an element.

    >>> checked_rows([[1.0, 2.0]])
    [[1.0, 2.0]]
    """
    X = unmasked(X)
    if hasattr(X, "iloc") and np.size(X):
        first = X.iloc[0] if X.ndim == 1 else X.iloc[0, 0]
        if isinstance(first, np.ndarray | list):
            name = X.name if X.ndim == 1 else X.columns[0]
            raise ValueError(
                f"expected a column for each feature, got one of vectors of {len(first)} numbers: pass "
                f"np.stack(frame[{name!r}])"
            )
    return X
