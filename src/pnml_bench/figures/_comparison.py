"""What the figures compare: kept by ``pnml bench --keep-scores``, or of a network that is run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.backend.arrays import to_numpy
from pnml.core.subspace import eigenvalue_tolerance
from pnml_bench.methods import METHODS
from pnml_bench.model_under_test import DatasetCache, ModelUnderTest, full_precision
from pnml_bench.options import Variant
from pnml_bench.protocol import plan
from pnml_bench.saved_scores import load_scores

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from pnml.report.model import ScoredSet
    from pnml_bench.methods import Method, View
    from pnml_bench.options import Options
    from pnml_bench.protocol import Cell


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


def comparisons(model: str, ind: str, ood: Sequence[str], method: str, options: Options) -> list[Comparison]:
    """Score an in-distribution set and each OOD set by one method.

    Gram and OECC hold out a tenth of the in-distribution set: their scores are of the other nine, in the first of the
    benchmark's trials.

    Args:
        model: the network's architecture.
        ind: the in-distribution set.
        ood: OOD sets as :func:`pnml_bench.protocol.plan` takes them.
        method: a name in ``pnml_bench.methods.METHODS``.
        options: how to run.
    """
    cells = plan(model, ind, ood, [method])
    if method not in METHODS:
        raise ValueError(
            f"the figure compares a method alone and with pNML, and {method!r} has no combination with pNML: "
            f"choose from {', '.join(METHODS)}"
        )
    cache = DatasetCache(options.limit)
    with full_precision():
        model_under_test = _model(cells[0], options, cache)
        views = [model_under_test.load(cell.ood)[0] for cell in cells]  # what is absent is missed before the long work
        fitted = model_under_test.fit().method(method, Variant()).method
        return [_comparison(cell, fitted, model_under_test.ind, view) for cell, view in zip(cells, views, strict=True)]


def spectra(model: str, inds: Sequence[str], options: Options) -> dict[str, Vector]:
    """Return the eigenvalues of each training set's embeddings, in the network that was trained on it."""
    cache = DatasetCache(options.limit)
    cells = [plan(model, ind, ["all"], ["baseline"])[0] for ind in inds]
    with full_precision():
        models = {cell.ind: _model(cell, options, cache) for cell in cells}
        fitted = {ind: model_under_test.fit().detector.subspace for ind, model_under_test in models.items()}
    return {ind: subspace.spectrum[: subspace.rank] for ind, subspace in fitted.items()}


def _model(cell: Cell, options: Options, cache: DatasetCache) -> ModelUnderTest:
    return ModelUnderTest(cell.model, cell.ind, str(options.checkpoint or cell.checkpoint), options, cache)


def _comparison(cell: Cell, method: Method, ind: View, ood: View) -> Comparison:
    rows = next(iter(method.trials(ind, ood)))
    alone = Scores(to_numpy(method.score(ind)[rows]), to_numpy(method.score(ood)))
    plus_pnml = Scores(to_numpy(method.score_with_pnml(ind)[rows]), to_numpy(method.score_with_pnml(ood)))
    return Comparison(cell.model, cell.ind, cell.ood_name, cell.method, alone, plus_pnml)
