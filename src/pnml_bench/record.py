"""Measuring a cell, or recording why it could not be run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnml.metrics import average, evaluate
from pnml_bench import zoo
from pnml_bench.clock import Memory, watched_memory
from pnml_bench.data import DataNotFoundError
from pnml_bench.protocol import NOISE
from pnml_bench.results import NO_IMAGES, NO_WEIGHTS, Result, Run, Scores, current_time
from pnml_bench.saved_scores import collect_scores, keeps_scores, save_scores, saved_scores_path

if TYPE_CHECKING:
    from pnml_bench.methods import Method
    from pnml_bench.methods.view import View
    from pnml_bench.model_under_test import ModelUnderTest
    from pnml_bench.options import Options, Variant
    from pnml_bench.protocol import Cell

UNAVAILABLE = (OSError, ImportError, ValueError)
"""What loading data or weights that are absent or broken raises."""


def measure(
    cell: Cell, variant: Variant, model: ModelUnderTest, views: list[View], *, shared: dict[str, float], run: Run
) -> Result:
    """Run a method on an OOD set.

    Args:
        cell: what to run.
        variant: how.
        model: the network.
        views: the OOD set, once for every seed of a noise set.
        shared: the seconds that embedding them took.
        run: the run that the result belongs to.

    Returns:
        The result. Its ``seconds`` hold in full what was done once for several cells: "load", "train_embedding",
        "fit", "ind_embedding", "ood_embedding" and "method_fit".

    Raises:
        MethodFailedError: the method cannot be fitted, or gives no usable scores.
    """
    method, fitting, fitting_memory = model.method(cell.method, variant)
    found: list[Scores] = []
    chosen: list[dict[str, Any]] = []
    memory: list[Memory] = []
    with model.clock.lap() as own, model.clock("score"):
        for view in views:
            found += _trials(method, model, view, memory)
            chosen.append(method.settings)
    seconds = dict(model.seconds)
    for part in (shared, fitting, own):
        for stage, passed in part.items():
            seconds[stage] = seconds.get(stage, 0.0) + passed
    peaks = [fitting_memory.then(scoring) for scoring in memory]
    result = Result(
        **_identity(cell, variant, model.options, run),
        scores=_mean(found),
        counts={"train": len(model.train), "ind": len(model.ind), "ood": len(views[0])},
        seeds=tuple(range(len(views))) if cell.ood in NOISE else (),
        accuracy=model.accuracy,
        rank=model.detector.subspace.rank,
        memory_bytes=max((peak for peak in peaks if peak is not None), default=None),
        memory_device=model.device_of(method).type,
        settings={
            "limit": model.options.limit,
            "batch_size": model.options.images_at_once,
            "method": chosen,
            **({"arithmetic": "published"} if variant.published else {}),
            "notes": _notes(model, views[0]),
            **({"own": own} if (own := model.options.own_record(cell)) else {}),
        },
        seconds={stage: round(passed, 6) for stage, passed in seconds.items()},
    )
    path = saved_scores_path(result, model.options.out)
    path.unlink(missing_ok=True)  # of an earlier run
    if model.options.keep_scores and keeps_scores(method):
        save_scores(collect_scores(cell, method, model, views[0]), path)
    return result


def not_run(cell: Cell, variant: Variant, options: Options, run: Run, error: Exception) -> Result:
    """Return a result with the reason why a cell could not be run, without the folders of this machine."""
    if isinstance(error, DataNotFoundError):
        reason = f"{NO_IMAGES}{error.name}"
    elif isinstance(error, FileNotFoundError | ConnectionError):
        name = options.checkpoint_of(cell)
        known = zoo.CHECKPOINTS.get(name)
        reason = f"{NO_WEIGHTS}{known.filename if known else f'no {name} is published'}"
    else:
        reason = str(error)
    return Result(**_identity(cell, variant, options, run), reason=reason)


def _trials(method: Method, model: ModelUnderTest, view: View, memory: list[Memory]) -> list[Scores]:
    ind, clock, found = model.ind, model.clock, []
    for rows in method.trials(ind, view):
        with clock("metrics"), watched_memory(model.device_of(method)) as taken, clock("score"):
            alone = method.score(ind)[rows], method.score(view)
        memory.append(taken)
        plus = None
        if method.composes:
            with clock("regret"):
                plus = method.score_with_pnml(ind)[rows], method.score_with_pnml(view)
        with clock("metrics"):
            found.append(Scores(evaluate(*alone), None if plus is None else evaluate(*plus)))
    return found


def _notes(model: ModelUnderTest, ood: View) -> dict[str, str]:
    """Return what is special about the image sets."""
    views = {"train": model.train, "ind": model.ind, "ood": ood}
    notes = {part: view.images.note for part, view in views.items() if view.images.note}
    if len(model.train) <= model.detector.n_features:
        few = f"no more images than the network has features, {model.detector.n_features}: too few for pnml-paper"
        notes["train"] = f"{notes['train']}; {few}" if "train" in notes else few
    return notes


def _mean(found: list[Scores]) -> Scores:
    plus = [scores.plus_pnml for scores in found if scores.plus_pnml is not None]
    return Scores(average(scores.method for scores in found), average(plus) if plus else None)


def _identity(cell: Cell, variant: Variant, options: Options, run: Run) -> dict[str, Any]:
    names = dict(zip(("model", "ind", "ood", "method"), cell.key, strict=True))
    checkpoint = options.checkpoint_of(cell)
    study = options.study_of(variant)
    return {**names, "study": study, "checkpoint": checkpoint, "date": current_time(), "run": run}
