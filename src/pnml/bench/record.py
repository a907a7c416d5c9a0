"""From a cell that was run, or could not be, to its result."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import torch

from pnml.bench import zoo
from pnml.bench.data import DataNotFoundError
from pnml.bench.memory import Memory, watched_memory
from pnml.bench.protocol import NOISE
from pnml.bench.results import Result, Scores, environment
from pnml.bench.saved_scores import gather, save_scores, saved_scores_path
from pnml.metrics import average, evaluate

if TYPE_CHECKING:
    from pnml.bench.methods import Method
    from pnml.bench.methods.view import View
    from pnml.bench.model_under_test import ModelUnderTest
    from pnml.bench.options import Options
    from pnml.bench.protocol import Cell

UNAVAILABLE = (OSError, ImportError, ValueError)
"""What loading data or weights that are absent or broken raises."""


def measure(cell: Cell, subject: ModelUnderTest, views: list[View], shared: dict[str, float]) -> Result:
    """Run a method on an OOD set.

    Args:
        cell: what to run.
        subject: the network.
        views: the OOD set, once for every seed of a noise set.
        shared: the seconds that embedding them took.

    Returns:
        The result. Its ``seconds`` hold in full what was done once for several cells: "load", "train_embedding",
        "fit", "ind_embedding", "ood_embedding" and "method_fit". ``settings["memory"]`` holds the peak, in bytes, of
        fitting and of the method's own score, beyond the network and the embeddings, and the kind of device it is of.

    Raises:
        MethodFailedError: the method cannot be fitted, or gives no usable scores.
    """
    method, fitting = subject.method(cell.method)
    found: list[Scores] = []
    chosen: list[dict[str, Any]] = []
    memory: list[Memory] = []
    with subject.clock.lap() as own, subject.clock("score"):
        for view in views:
            found += _trials(method, subject, view, memory)
            chosen.append(method.settings)
    settings = {
        "limit": subject.options.limit,
        "batch_size": subject.options.images_at_once,
        "accuracy": subject.accuracy,
        "rank": subject.detector.subspace.rank,
        "method": chosen,
        "memory": _peak(subject.memory[cell.method], memory, subject.device_of(method)),
        "notes": _notes(subject, views[0]),
    }
    seconds = dict(subject.seconds)
    for part in (shared, fitting, own):
        for stage, passed in part.items():
            seconds[stage] = seconds.get(stage, 0.0) + passed
    result = Result(
        **_about(cell, subject.options),
        scores=_mean(found),
        counts={"train": len(subject.train), "ind": len(subject.ind), "ood": len(views[0])},
        seeds=tuple(range(len(views))) if cell.ood in NOISE else (),
        settings=settings,
        seconds={stage: round(passed, 6) for stage, passed in seconds.items()},
    )
    kept = saved_scores_path(result, subject.options.folder)
    kept.unlink(missing_ok=True)  # of an earlier run
    if subject.options.keep_scores and method.composes:
        save_scores(gather(cell.ind, cell.ood_name, method, subject, views[0]), kept)
    return result


def not_run(cell: Cell, options: Options, error: Exception) -> Result:
    """Say why a cell could not be run, without naming folders of this machine where we can."""
    if isinstance(error, DataNotFoundError):
        reason = f"image set absent: {error.name}"
    elif isinstance(error, FileNotFoundError | ConnectionError):
        name = options.checkpoint_of(cell)
        known = zoo.CHECKPOINTS.get(name)
        reason = f"checkpoint absent: {known.filename if known else f'no {name} is published'}"
    else:
        reason = str(error)
    return Result(**_about(cell, options), reason=reason)


def _trials(method: Method, subject: ModelUnderTest, view: View, memory: list[Memory]) -> list[Scores]:
    ind, clock, found = subject.ind, subject.clock, []
    for rows in method.trials(ind, view):
        with clock("metrics"), watched_memory(subject.device_of(method)) as taken, clock("score"):
            alone = method.score(ind)[rows], method.score(view)
        memory.append(taken)
        plus = None
        if method.composes:
            with clock("regret"):
                plus = method.score_with_pnml(ind)[rows], method.score_with_pnml(view)
        with clock("metrics"):
            found.append(Scores(evaluate(*alone), None if plus is None else evaluate(*plus)))
    return found


def _peak(fitting: Memory, scoring: list[Memory], device: torch.device) -> dict[str, Any]:
    peaks = [fitting.then(taken) for taken in scoring]
    known = [peak for peak in peaks if peak is not None]
    return {"bytes": max(known, default=None), "on": device.type}


def _notes(subject: ModelUnderTest, ood: View) -> dict[str, str]:
    """Collect what is special about the sets."""
    seen = {"train": subject.train, "ind": subject.ind, "ood": ood}
    notes = {part: view.images.note for part, view in seen.items() if view.images.note}
    if len(subject.train) <= subject.detector.n_features:
        few = f"no more images than the network has features, {subject.detector.n_features}: too few for the regret"
        notes["train"] = f"{notes['train']}; {few}" if "train" in notes else few
    return notes


def _mean(found: list[Scores]) -> Scores:
    plus = [scores.plus_pnml for scores in found if scores.plus_pnml is not None]
    return Scores(average(scores.method for scores in found), average(plus) if plus else None)


def _about(cell: Cell, options: Options) -> dict[str, Any]:
    device = options.torch_device
    named = torch.cuda.get_device_name(device) if device.type == "cuda" else environment()["cpu"]
    model, ind, ood, method = cell.key
    return {
        "model": model,
        "ind": ind,
        "ood": ood,
        "method": method,
        "checkpoint": options.checkpoint_of(cell),
        "command": options.command(cell),
        "versions": environment(),
        "device": f"{device.type}: {named}",
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
