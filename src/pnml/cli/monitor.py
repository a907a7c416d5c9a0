"""``pnml monitor``: is a stream of scores still like the calibration data?"""

import math
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from pnml.cli._app import Facts
from pnml.cli._errors import Noticed
from pnml.core.calibration import Threshold
from pnml.core.detector import Detector
from pnml.core.monitor import Monitor
from pnml.io.locks import lock_folder
from pnml.io.outputs import check_output
from pnml.io.preparation import of_images
from pnml.io.score_table import take_in
from pnml.io.scores import layer_labels
from pnml.io.texts import read_class_names
from pnml.report.checks import check_class_names
from pnml.report.monitored import write_monitor
from pnml.report.stream_tables import excess_by_class

_ALPHA = 0.01
_MOST_CLASSES = 5


def monitor(
    scores: Annotated[
        list[Path], typer.Argument(help="Tables of `pnml score`, in the order of the stream.", exists=True)
    ],
    *,
    detector: Annotated[
        Path | None,
        typer.Option(
            help="The calibrated detector; a --state that exists has what is needed of it.", exists=True, dir_okay=False
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The page to write.", dir_okay=False)] = Path("monitor.html"),
    state: Annotated[
        Path | None,
        typer.Option(help="Go on from this file if it is there, and write it: .safetensors.", dir_okay=False),
    ] = None,
    alpha: Annotated[
        float | None,
        typer.Option(
            help=f"The probability of ever raising a false alarm, between 0 and 1; by default {_ALPHA}, or that of the "
            "--state.",
            show_default=False,
        ),
    ] = None,
    title: Annotated[str | None, typer.Option(help="Its title.")] = None,
    classes: Annotated[
        Path | None, typer.Option(help="A text file of class names, one a line.", exists=True, dir_okay=False)
    ] = None,
) -> Facts:
    """Say whether a stream still looks like the calibration data, and since when not; write a page for a browser.

    The evidence may be looked at after every table. While calibration data and stream are alike, an alarm is ever
    raised with probability --alpha at most, however long the stream. An alarm stays: when the change is dealt with,
    start over with another --state.

    Exit codes: 0 no alarm, 3 an alarm now or before, 1 refused or failed, 2 wrong usage.

    Example: `pnml monitor monday.csv tuesday.csv --detector detector.safetensors --state monitor.safetensors`

    Example: `pnml monitor wednesday.csv --state monitor.safetensors --out monitor.html`
    """
    if alpha is not None and not 0 < alpha < 1:
        raise typer.BadParameter(f"{alpha} does not lie between 0 and 1", param_hint="--alpha")
    check_output(out, *scores, detector, classes, state)
    if state is not None:
        if out.resolve() == state.resolve():
            raise typer.BadParameter(f"{out} is the --state, too: name another page", param_hint="--out")
        check_output(state, *scores, detector, classes)
    names = [] if classes is None else read_class_names(classes)
    with ExitStack() as stack:
        if state is not None:
            stack.enter_context(lock_folder(state.with_name(f"{state.name}.lock")))
        watching = _opened(detector, state, alpha)
        check_class_names(names, watching.threshold.n_classes, f"the calibration of {detector or state}", classes)
        before = watching.count
        parts = _take_in_all(watching, scores)
        rows = watching.count - before
        facts = {
            "Scores": f"{', '.join(path.name for path in scores)}: {rows:,} samples",
            "Detector": detector.name if detector is not None else f"the one of {state and state.name}",
        }
        title = title or f"Watching {scores[0].name}" + (f" to {scores[-1].name}" if len(scores) > 1 else "")
        page = write_monitor(watching, out, title=title, facts=facts, class_names=names, parts=parts)
        if state is not None:
            watching.save(state)  # the last step: whoever is interrupted before it repeats the command
    for line in _describe(watching, rows, names):
        typer.echo(line)
    typer.echo(f"wrote {page}" + (f" and {state}" if state is not None else ""))
    facts_of_run = {"page": page, "state": state, "rows": rows, **_facts(watching)}
    if watching.alarm_at is not None:
        raise Noticed(facts_of_run)
    return facts_of_run


def _opened(detector: Path | None, state: Path | None, alpha: float | None) -> Monitor:
    """Return the monitor of a file that is there, or a new one."""
    fitted = None if detector is None else Detector.load(detector)
    if fitted is not None and fitted.threshold is None:
        samples = "--embeddings HELD_OUT" if of_images(fitted.preparation) is None else "--images HELD_OUT --model ..."
        raise ValueError(f"{detector} has no threshold: pnml calibrate {detector} {samples}")
    if state is None or not state.exists():
        if fitted is None:
            raise typer.BadParameter("give the detector, or a --state that exists", param_hint="--detector")
        return Monitor(fitted, alpha=_ALPHA if alpha is None else alpha)
    watching = Monitor.load(state)
    if alpha not in {None, watching.alpha}:
        raise ValueError(
            f"{state} has --alpha {watching.alpha:g}, not {alpha:g}: leave it out, or name another --state"
        )
    if fitted is not None and fitted.threshold is not None and not _is_same(fitted.threshold, watching.threshold):
        raise ValueError(f"{state} is of another calibration than {detector}: name another --state to start over")
    return watching


def _is_same(one: Threshold, other: Threshold) -> bool:
    return one == other and np.array_equal(one.scores, other.scores)


def _take_in_all(watching: Monitor, scores: list[Path]) -> dict[str, int]:
    """Update with all tables; return the first sample of each by its name, "before" for those of earlier runs."""
    parts = {"before": 1} if watching.count else {}
    names = [path.name for path in scores]
    for path in scores:
        name = path.name if names.count(path.name) == 1 else f"{path.parent.name}/{path.name}"
        parts[name] = watching.count + 1
        take_in(watching, path)
    return parts


def _describe(watching: Monitor, rows: int, class_names: list[str]) -> list[str]:
    *earlier, last = watching.periods
    low, high = last.interval()
    rate = 100 * watching.threshold.false_alarm_rate
    seen = f"{last}: {last.share:.1%} flagged ({low:.1%} to {high:.1%} with 95% confidence)"
    lines = [f"took in {rows:,} rows, {watching.count:,} samples in all", watching.verdict]
    if watching.alarm_at is None:
        return [*lines, f"{seen}, {rate:.4g}% expected"]
    lines.append(f"alarm at sample {watching.alarm_at:,}; false alarms, ever: probability {watching.alpha:g} at most")
    lines.append(f"{seen}, {f'{earlier[0].share:.1%} before' if earlier else f'{rate:.4g}% expected'}")
    drivers = _drivers(watching)
    if drivers:
        named = (class_names[number] if class_names else str(number) for number in drivers)
        lines.append(f"flagged above expectation most: class {', '.join(named)}")
    return lines


def _drivers(watching: Monitor) -> list[int]:
    """Return the predicted classes with most flagged samples above expectation, where classes are known."""
    excess = excess_by_class(watching)
    return [int(number) for number in np.argsort(-excess, kind="stable")[:_MOST_CLASSES] if excess[number] > 0]


def _facts(watching: Monitor) -> Facts:
    last = watching.periods[-1]
    layers = dict(zip(layer_labels(watching.layer_names), last.layer_flagged.tolist(), strict=True))
    return {
        "samples": watching.count,
        "flagged": int(watching.history.flagged.sum()),
        "alpha": watching.alpha,
        "log10_evidence": watching.log_evidence / math.log(10),
        "log10_peak": watching.log_peak / math.log(10),
        "alarm_at": watching.alarm_at,
        "since": watching.since,
        "periods": [
            {
                "first": one.first,
                "last": one.last,
                "flagged": one.flagged,
                "share": one.share,
                "interval": one.interval(),
            }
            for one in watching.periods
        ],
        "expected": watching.threshold.false_alarm_rate,
        "classes": _drivers(watching),
        "layers": layers if last.layer_flagged.any() else {},
    }
