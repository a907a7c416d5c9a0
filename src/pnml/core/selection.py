"""Choosing samples among many, so that few of those chosen are false alarms."""

from __future__ import annotations

import numpy as np

from pnml.backend.arrays import Array, as_array, is_real_floating, like, precision, to_numpy
from pnml.core.conformal import check_share


def select(p_values: Array, fdr: float = 0.1) -> Array:
    """Return which samples to look at, so that on average at most a share ``fdr`` of them is in-distribution.

    A threshold keeps the share of in-distribution samples that is flagged. Where most samples are in-distribution, most
    flagged ones then are, too. This keeps the share of false alarms among the flagged instead (Benjamini and Hochberg,
    1995): k samples are chosen if the k-th smallest of m p-values is at most ``fdr`` · k / m, for the largest such k.
    It holds for p-values of one calibration set, which depend on each other positively (Bates, Candès, Lei, Romano and
    Sesia, 2023).

    n calibration samples give no p-value below 1 / (n + 1): to choose k of m samples, n + 1 must be m / (``fdr`` · k)
    or more.

    Args:
        p_values: ``result.p_value``, or another array of shape (m,) with numbers from 0 to 1.
        fdr: the false discovery rate, between 0 and 1.

    Returns:
        Booleans of shape (m,), in the library and on the device of ``p_values``.

    >>> select(np.array([0.01, 0.8, 0.02, 0.5]), fdr=0.1)
    array([ True, False,  True, False])
    """
    check_share("fdr", fdr)
    if p_values is None:
        raise ValueError("there are no p-values before a threshold is set: call calibrate(...) first")
    if hasattr(type(p_values), "p_value"):  # not of the object itself, which would compute it
        raise ValueError(
            f"expected p-values, got a {type(p_values).__name__}: pass its p_value, select(result.p_value)"
        )
    given = as_array(p_values)
    found = to_numpy(given, None)
    if found.dtype == bool:
        raise ValueError("expected p-values, got decisions: pass select(result.p_value)")
    found = to_numpy(found)
    if found.ndim != 1:
        raise ValueError(f"expected p-values of shape (m,), got shape {found.shape}")
    is_share = (found >= 0) & (found <= 1)
    if not is_share.all():
        wrong = int(is_share.argmin())
        raise ValueError(f"p-value {wrong} is {found[wrong]}: expected numbers from 0 to 1")
    rounding = precision(given) if is_real_floating(given) else 0.0
    ascending = np.sort(found)
    limits = fdr * np.arange(1, len(found) + 1) / max(1, len(found)) * (1 + rounding)
    passed = np.flatnonzero(ascending <= limits)
    return like(given, found <= (ascending[passed[-1]] if len(passed) else -1.0))
