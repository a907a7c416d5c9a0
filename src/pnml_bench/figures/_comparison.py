"""What the figures compare: scores that ``pnml bench --keep-scores`` kept."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.core.subspace import eigenvalue_tolerance
from pnml_bench.saved_scores import load_scores

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from pnml.report.model import ScoredSet


Vector = np.ndarray[Any, Any]


class Scores(NamedTuple):
    """One score of the in-distribution samples, shape (n,), and of the OOD samples, shape (m,)."""

    ind: Vector
    ood: Vector


@dataclass(frozen=True, eq=False)
class Comparison:
    """A method's own score and its score with pNML, of the same samples of one IND-OOD pair."""

    model: str
    ind: str
    ood: str
    method: str
    alone: Scores
    plus_pnml: Scores


def kept_comparison(path: Path) -> Comparison:
    """Return the two scores of a cell, by the names in the name of its file."""
    model, ind, ood, method = _names(path)
    found = load_scores(path)
    alone = Scores(_own_scores(found.ind, path), _own_scores(found.ood, path))
    return Comparison(model, ind, ood, method, alone, Scores(found.ind.regret, found.ood.regret))


def kept_spectra(paths: Iterable[Path]) -> dict[str, dict[str, Vector]]:
    """Return the eigenvalues of the training embeddings by network and training set, without those of rounding."""
    found: dict[str, dict[str, Vector]] = {}
    for path in paths:
        model, ind, *_ = _names(path)
        eigenvalues = load_scores(path).spectrum
        found.setdefault(model, {})[ind] = eigenvalues[eigenvalues > eigenvalue_tolerance(eigenvalues)]
    return found


def _names(path: Path) -> list[str]:
    names = path.name.removesuffix(".safetensors").split("__")
    if len(names) != 4:
        raise ValueError(
            f"{path} is not named like a file of scores, MODEL__IND__OOD__METHOD.safetensors: give one that "
            "pnml bench --keep-scores wrote"
        )
    return names


def _own_scores(scored: ScoredSet, path: Path) -> Vector:
    """Return the scores of the method alone."""
    if scored.baseline is None:
        raise ValueError(f"{path} holds no baseline scores: run the cell again with pnml bench --keep-scores")
    return scored.baseline
