"""Text and a drawing of the eigenvalues of the training embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.subspace import eigenvalue_tolerance

if TYPE_CHECKING:
    from numpy.typing import NDArray

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 8


def effective_rank(eigenvalues: NDArray[Any]) -> float:
    """Return the exponential of the entropy of eigenvalues: the number of equal ones that have the same entropy.

    >>> effective_rank(np.array([2.0, 2.0, 0.0]))
    2.0
    """
    share = eigenvalues[eigenvalues > 0] / eigenvalues.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def rank_of(spectrum: NDArray[Any]) -> int:
    """Return how many eigenvalues, descending, are no rounding."""
    return int((spectrum > eigenvalue_tolerance(spectrum)).sum())


def describe_as_facts(spectrum: NDArray[Any]) -> dict[str, float]:
    """Return the rank, the effective rank, and the number of directions with 99% of the energy."""
    energy = np.cumsum(spectrum) / spectrum.sum()
    most = int(np.searchsorted(energy, 0.99)) + 1
    return {
        "rank": rank_of(spectrum),
        "effective_rank": effective_rank(spectrum),
        "directions_of_99_percent": most,
    }


def describe(spectrum: NDArray[Any]) -> str:
    """Return the effective rank of the training embeddings, and the number of directions with 99% of the energy."""
    facts = describe_as_facts(spectrum)
    return (
        f"{facts['effective_rank']:.1f} directions in effect (exp of the entropy of the spectrum), "
        f"99% of the energy in {facts['directions_of_99_percent']:,}"
    )


def draw(spectrum: NDArray[Any], width: int = 60) -> list[str]:
    """Return lines that draw the eigenvalues of the mean correlation, largest first, on a logarithmic scale.

    Each column shows the largest of a run of eigenvalues; ``×`` marks directions that no training row has.

    >>> for line in draw(np.array([0.25, 0.0025, 0.000025, 0.0])):
    ...     print(line)
     2.5e-01 │█
     6.7e-02 │█
     1.8e-02 │█
     4.8e-03 │█▄
     1.3e-03 │██
     3.5e-04 │██
     9.3e-05 │██
     2.5e-05 │███×
             └────
              1  4
    """
    columns = min(width, len(spectrum))
    starts = np.arange(columns) * len(spectrum) // columns
    seen = starts < rank_of(spectrum)
    logs = np.log10(spectrum[starts[seen]])
    top = logs.max()
    step = max((top - logs.min()) / (_HEIGHT - 1), 1e-3)
    levels = np.zeros(columns)
    levels[seen] = (logs - top) / step + _HEIGHT
    lines = []
    for row in range(_HEIGHT, 0, -1):
        eighths = np.clip(np.round((levels - row + 1) * 8), 0, 8).astype(int)
        bars = "".join(_BLOCKS[n] for n in eighths[seen]) + ("×" if row == 1 else " ") * int((~seen).sum())
        lines.append(f" {10 ** (top - (_HEIGHT - row) * step):.1e} │{bars}".rstrip())
    last = f"{len(spectrum):,}"
    return [*lines, f"{'':9}└{'─' * columns}", f"{'':10}1{last:>{max(columns - 1, len(last) + 1)}}"]
