"""What a report shows of a cell beside its metrics: every sample's scores, and a few small pictures."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from pnml.backend.arrays import to_numpy
from pnml.backend.read_errors import names_its_file
from pnml.backend.state import load_state, save_state
from pnml.report.labels import label
from pnml.report.model import ScoredSet
from pnml.report.thumbnails import extremes, thumbnail

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml_bench.methods import Method
    from pnml_bench.methods.protocol import Rows
    from pnml_bench.methods.view import View
    from pnml_bench.model_under_test import ModelUnderTest
    from pnml_bench.protocol import Cell
    from pnml_bench.results import Result

KIND = "pnml.scores"
VERSION = 2
_COLUMNS = ("regret", "baseline", "prediction", "probability", "labels")


class SavedScores(NamedTuple):
    """The two scored sets of a cell, and the eigenvalues of the training embeddings' mean correlation, descending."""

    ind: ScoredSet
    ood: ScoredSet
    spectrum: NDArray[np.float64]


def saved_scores_path(result: Result, folder: Path) -> Path:
    """Return the path of a result's scores in a folder of results."""
    return folder / "scores" / result.study / f"{result.cell_id}.safetensors"


def keeps_scores(method: Method | type[Method]) -> bool:
    """Return whether there are two scores to compare: a method alone and with pNML, or confidence and a regret."""
    return method.composes or method.is_regret


def collect_scores(cell: Cell, method: Method, model: ModelUnderTest, ood: View) -> SavedScores:
    """Score the sets of a cell, in the first of the method's trials, and choose the pictures to keep."""
    rows = next(iter(method.trials(model.ind, ood)))
    labels = None if model.accuracy is None else model.ind.images.labels
    return SavedScores(
        _scored(method, model.ind, rows, name=label(cell.ind), role="in", labels=labels),
        _scored(method, ood, slice(None), name=label(cell.ood_name), role="out", labels=None),
        model.detector.subspace.spectrum,
    )


def save_scores(scores: SavedScores, path: Path) -> None:
    """Write scores, whole or not at all."""
    arrays: dict[str, NDArray[Any]] = {"spectrum": scores.spectrum}
    for part, scored in (("ind", scores.ind), ("ood", scores.ood)):
        for name in _COLUMNS:
            if getattr(scored, name) is not None:
                arrays[f"{part}.{name}"] = getattr(scored, name)
        pictures: Any = scored.images
        if pictures is not None:
            arrays[f"{part}.picture_rows"] = np.asarray(list(pictures))
            arrays[f"{part}.pictures"] = np.stack(list(pictures.values()))
    path.parent.mkdir(parents=True, exist_ok=True)
    save_state(path, KIND, VERSION, arrays, {"ind": scores.ind.name, "ood": scores.ood.name})


@names_its_file
def load_scores(path: Path) -> SavedScores:
    """Read scores; raise ``ValueError`` for a file that holds something else."""
    arrays, names = load_state(path, KIND, VERSION)

    def part(key: str, role: Any) -> ScoredSet:
        columns: dict[str, Any] = {name: arrays.get(f"{key}.{name}") for name in _COLUMNS}
        pictures = None
        if f"{key}.pictures" in arrays:
            pictures = dict(zip(arrays[f"{key}.picture_rows"].tolist(), arrays[f"{key}.pictures"], strict=True))
        return ScoredSet(name=names[key], role=role, images=pictures, **columns)

    return SavedScores(part("ind", "in"), part("ood", "out"), arrays["spectrum"])


def _scored(
    method: Method, view: View, rows: Rows, *, name: str, role: Any, labels: NDArray[np.int64] | None
) -> ScoredSet:
    probability, prediction = view.logits.double().softmax(dim=-1).max(dim=-1)
    alone, combined = method.score(view), method.score_with_pnml(view) if method.composes else None
    pair = (1 - probability, alone) if combined is None else (alone, combined)
    baseline, regret = (to_numpy(scores[rows]) for scores in pair)
    numbers = np.arange(len(view))[rows]
    pictures: Any = view.images.images
    shown = () if pictures is None else np.concatenate(extremes(regret))  # texts have none
    return ScoredSet(
        name=name,
        role=role,
        regret=regret,
        baseline=baseline,
        prediction=to_numpy(prediction[rows], np.int64),
        probability=to_numpy(probability[rows]),
        labels=None if labels is None else labels[rows],
        images={int(row): thumbnail(pictures[numbers[row]]) for row in shown} or None,
    )
