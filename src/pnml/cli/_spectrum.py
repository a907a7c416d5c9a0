"""Text and a drawing of the eigenvalues of the training embeddings."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from pnml.core.subspace import Subspace

_BLOCKS = " ▁▂▃▄▅▆▇█"
_HEIGHT = 8


def effective_rank(eigenvalues: NDArray[Any]) -> float:
    """Return the exponential of the entropy of eigenvalues: the number of equal ones that have the same entropy.

    >>> effective_rank(np.array([2.0, 2.0, 0.0]))
    2.0
    """
    share = eigenvalues[eigenvalues > 0] / eigenvalues.sum()
    return float(np.exp(-(share * np.log(share)).sum()))


def describe_as_facts(subspace: Subspace) -> dict[str, float]:
    """Return the rank, the effective rank, and the number of directions with 99% of the energy."""
    energy = np.cumsum(subspace.eigenvalues) / subspace.eigenvalues.sum()
    most = int(np.searchsorted(energy, 0.99)) + 1
    return {
        "rank": subspace.rank,
        "effective_rank": effective_rank(subspace.eigenvalues),
        "directions_of_99_percent": most,
    }


def describe(subspace: Subspace) -> str:
    """Return the effective rank of the training embeddings, and the number of directions with 99% of the energy."""
    facts = describe_as_facts(subspace)
    return (
        f"{facts['effective_rank']:.1f} directions in effect (exp of the entropy of the spectrum), "
        f"99% of the energy in {facts['directions_of_99_percent']:,}"
    )


def draw(subspace: Subspace, width: int = 60) -> list[str]:
    """Return lines that draw the eigenvalues of the mean correlation, largest first, on a logarithmic scale.

    Each column shows the largest of a run of eigenvalues; ``×`` marks directions that no training row has.

    >>> from pnml import Correlation, Subspace
    >>> for line in draw(Subspace.fit(Correlation().update(np.diag([1.0, 0.1, 0.01, 0.0])))):
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
    columns = min(width, subspace.n_features)
    starts = np.arange(columns) * subspace.n_features // columns
    seen = starts < subspace.rank
    logs = np.log10(subspace.spectrum[starts[seen]])
    top = logs.max()
    step = max((top - logs.min()) / (_HEIGHT - 1), 1e-3)
    levels = np.zeros(columns)
    levels[seen] = (logs - top) / step + _HEIGHT
    lines = []
    for row in range(_HEIGHT, 0, -1):
        eighths = np.clip(np.round((levels - row + 1) * 8), 0, 8).astype(int)
        bars = "".join(_BLOCKS[n] for n in eighths[seen]) + ("×" if row == 1 else " ") * int((~seen).sum())
        lines.append(f" {10 ** (top - (_HEIGHT - row) * step):.1e} │{bars}".rstrip())
    last = f"{subspace.n_features:,}"
    return [*lines, f"{'':9}└{'─' * columns}", f"{'':10}1{last:>{max(columns - 1, len(last) + 1)}}"]
