"""The scores that figures are drawn from: a network and image sets, run on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pnml.backend.arrays import to_numpy
from pnml_bench.dataset_cache import DatasetCache
from pnml_bench.figures._comparison import Comparison, Scores
from pnml_bench.methods import METHODS
from pnml_bench.model_under_test import ModelUnderTest, full_precision
from pnml_bench.options import Variant
from pnml_bench.protocol import plan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pnml_bench.figures._comparison import Vector
    from pnml_bench.methods import Method, View
    from pnml_bench.options import Options
    from pnml_bench.protocol import Cell


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
