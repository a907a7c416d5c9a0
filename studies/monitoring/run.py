"""The picture of the guide to monitoring: how soon a change is noticed, and how often there is a false alarm.

Left: a detector of the digits 0 to 7 watches known digits, and then a mixture of known and unknown ones. Right: streams
without any change, of which the share is counted that has raised an alarm, with the p-values of one fixed calibration
set and with those of the monitor. It takes some minutes.

Example: python -m studies.monitoring.run --out out/figures --record studies/monitoring/record.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression

from pnml import Detector, Monitor
from pnml.backend.files import write_text
from pnml.core.calibration import calibrate
from pnml.core.martingale import Martingale
from pnml_bench.figures import new_figure, save
from pnml_bench.results import start_run

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

QUIET, CHANGED = 300, 230
SHARES = (1.0, 0.3, 0.1)
COUNTS = (50, 200, 1000)
FEW_STREAMS = 40
ALPHA_DIGITS, ALPHA_STREAMS = 0.01, 0.05
COLOURS = ("#08306b", "#2b7bba", "#e6862c")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainings", type=int, default=40)
    parser.add_argument("--streams", type=int, default=200)
    parser.add_argument("--length", type=int, default=10_000)
    parser.add_argument("--out", type=Path, default=Path("out/figures"))
    parser.add_argument("--record", type=Path, default=Path("out/monitoring.json"))
    args = parser.parse_args()
    digits = [[watch_digits(seed, share) for seed in range(args.trainings)] for share in SHARES]
    alarms = {
        count: (
            alarms_of_monitor(count, args.streams, args.length),
            alarms_of_fixed(count, args.streams, args.length),
        )
        for count in COUNTS
    }
    options = f"--trainings {args.trainings} --streams {args.streams} --length {args.length}"
    record = {
        "run": asdict(start_run(f"python -m studies.monitoring.run {options}", "cpu")),
        "digits": {
            "quiet": QUIET,
            "changed": CHANGED,
            "trainings": args.trainings,
            "alpha": ALPHA_DIGITS,
            **{f"{share:.0%} unknown": delays(found) for share, found in zip(SHARES, digits, strict=True)},
        },
        "no change": {
            "streams": args.streams,
            "length": args.length,
            "alpha": ALPHA_STREAMS,
            **{
                f"{count} calibration samples": {
                    "alarms of the monitor": float(np.isfinite(own).mean()),
                    "alarms with a fixed calibration set": float(np.isfinite(fixed).mean()),
                }
                for count, (own, fixed) in alarms.items()
            },
        },
        "10% of samples 3 standard deviations larger, 50 calibration samples": {
            "streams": FEW_STREAMS,
            "noticed within 3,000 samples, from the first sample on": noticed(quiet=0),
            "noticed within 3,000 samples, after 1,000 quiet ones": noticed(quiet=1000),
        },
        "samples a second of one core": {"in batches of 10,000": speed(10_000, 30), "one by one": speed(1, 3000)},
    }
    write_text(args.record, json.dumps(record, indent=2) + "\n")
    print(json.dumps(record, indent=2))
    for path in save(draw([found[0][0] for found in digits], alarms, args.length), args.out, "monitoring"):
        print(path)


def watch_digits(seed: int, share: float) -> tuple[NDArray[np.float64], int | None, int | None]:
    """Watch known digits, then a mixture.

    Returns:
        The log-evidence after every sample, and the samples of the alarm and of the change that it dates, if any.
    """
    images, labels = load_digits(return_X_y=True)
    rng = np.random.default_rng(seed)
    known, unknown = (rng.permutation(np.flatnonzero(of)) for of in (labels < 8, labels >= 8))
    train, held_out, fresh = np.split(known, [500, 900])
    model = LogisticRegression(max_iter=2000).fit(images[train] / 16, labels[train])
    detector = Detector(model.coef_, model.intercept_).fit(images[train] / 16)
    detector.calibrate(images[held_out] / 16)
    is_unknown = rng.random(CHANGED) < share
    later = np.where(is_unknown, unknown[:CHANGED], fresh[QUIET : QUIET + CHANGED])
    result = detector(images[np.concatenate([fresh[:QUIET], later])] / 16)
    monitor, evidence = Monitor(detector, alpha=ALPHA_DIGITS, seed=seed), []
    for one in result:
        monitor.update(one)
        evidence.append(monitor.log_evidence)
    return np.array(evidence), monitor.alarm_at, monitor.since


def delays(found: list[tuple[NDArray[np.float64], int | None, int | None]]) -> dict[str, Any]:
    """Return how many samples of the change it took until the alarm, and how far the date of the change is off."""
    noticed = [(at - QUIET, since - QUIET - 1) for _, at, since in found if at is not None and since is not None]
    late = [(delay, off) for delay, off in noticed if delay > 0]
    counted = [delay for delay, _ in late] + [math.inf] * (len(found) - len(noticed))
    return {
        "alarms before the change": len(noticed) - len(late),
        "noticed within 200 samples": sum(delay <= 200 for delay in counted),
        "median delay": float(np.median(counted)) if np.isfinite(np.median(counted)) else None,
        "largest delay": max(counted) if np.isfinite(max(counted)) else None,
        "date off by, median": float(np.median([abs(off) for _, off in late])) if late else None,
    }


def alarms_of_monitor(count: int, streams: int, length: int) -> NDArray[np.float64]:
    """Return when the monitor of each stream without a change raised an alarm; infinity for never."""
    rng = np.random.default_rng(count)
    found = []
    for seed in range(streams):
        monitor = Monitor(calibrate(rng.normal(size=count)), alpha=ALPHA_STREAMS, seed=seed)
        monitor.update(rng.normal(size=length))
        found.append(math.inf if monitor.alarm_at is None else monitor.alarm_at)
    return np.array(found)


def alarms_of_fixed(count: int, streams: int, length: int) -> NDArray[np.float64]:
    """Return the same for p-values that compare every sample with the calibration set alone."""
    rng = np.random.default_rng(count)
    held = np.sort(rng.normal(size=(streams, count)), axis=1)
    martingale, found = Martingale((streams,)), np.full(streams, math.inf)
    for start in range(0, length, 50):
        scores = rng.normal(size=(50, streams))
        above = np.stack([count - np.searchsorted(held[one], scores[:, one]) for one in range(streams)], axis=1)
        evidence = martingale.grow((above + 1 - rng.random(scores.shape)) / (count + 1))
        reached = evidence >= -math.log(ALPHA_STREAMS)
        first = np.where(reached.any(axis=0), start + 1 + reached.argmax(axis=0), math.inf)
        found = np.minimum(found, first)
    return found


def noticed(quiet: int) -> int:
    """Return in how many streams a weak change is noticed, when it comes after so many quiet samples."""
    rng, found = np.random.default_rng(quiet), 0
    for seed in range(FEW_STREAMS):
        monitor = Monitor(calibrate(rng.normal(size=50)), alpha=ALPHA_DIGITS, seed=seed)
        monitor.update(rng.normal(size=quiet))
        before = monitor.alarm_at is not None
        found += monitor.update(rng.normal(size=3000) + 3 * (rng.random(3000) < 0.1)) and not before
    return found


def speed(size: int, batches: int) -> int:
    """Return how many samples a second a monitor takes in, after 100,000."""
    rng = np.random.default_rng(0)
    monitor = Monitor(calibrate(rng.gamma(2, 0.1, 1000)))
    monitor.update(rng.gamma(2, 0.1, 100_000))
    stream = rng.gamma(2, 0.1, (batches, size))
    start = time.process_time()
    for batch in stream:
        monitor.update(batch)
    return round(size * batches / (time.process_time() - start))


def draw(
    evidence: list[NDArray[np.float64]],
    alarms: dict[int, tuple[NDArray[np.float64], NDArray[np.float64]]],
    length: int,
) -> Figure:
    """Draw the evidence over one stream for each share of unknown digits, and the share of false alarms over time."""
    figure = new_figure(10, 3.4)
    left, right = figure.subplots(1, 2)
    for values, share, colour in zip(evidence, SHARES, COLOURS, strict=True):
        left.plot(np.arange(1, len(values) + 1), values / math.log(10), color=colour, label=f"{share:.0%} unknown")
    left.axhline(-math.log10(ALPHA_DIGITS), color="black", linestyle="--", linewidth=1, label="alarm")
    left.axvline(QUIET, color="black", linewidth=0.8)
    left.set_ylim(-2, 14)
    left.set_yticks(range(0, 15, 4), ["1", *(f"$10^{{{power}}}$" for power in range(4, 15, 4))])
    left.set_xlabel("sample; unknown digits come after the line")
    left.set_ylabel("evidence")
    left.legend(frameon=False, loc="upper left")
    samples = np.arange(0, length + 1, 20)
    for (count, (own, fixed)), colour in zip(alarms.items(), COLOURS, strict=True):
        for times, style, kind in ((own, "-", "monitor"), (fixed, ":", "fixed set")):
            shares = 100 * (times[:, None] <= samples).mean(axis=0)
            right.plot(samples, shares, style, color=colour, label=f"{count:,}, {kind}")
    right.axhline(100 * ALPHA_STREAMS, color="black", linestyle="--", linewidth=1, label="promised at most")
    right.set_xlabel("samples without any change")
    right.set_ylabel("streams with an alarm, %")
    anchor = {"loc": "center right", "bbox_to_anchor": (1, 0.47)}
    right.legend(frameon=False, ncols=2, fontsize=8, title="calibration samples", title_fontsize=8, **anchor)
    return figure


if __name__ == "__main__":
    main()
