"""The page of a monitor: is the stream still like the calibration data, since when not, and what drives it?"""

from __future__ import annotations

import math
import re
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pnml.backend.files import write_text
from pnml.report.by_class import CONFIDENCE, expected_interval
from pnml.report.checks import check_class_names
from pnml.report.document import render_document, render_entries, render_plot
from pnml.report.stream_tables import class_table, depth_table
from pnml.report.tables import render_table

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pnml.core.history import History, Period
    from pnml.core.monitor import Monitor

_MOST_RATES = 32
_LEAST_SAMPLES = 50  # of a rate over time, where the stream has them

_DEFINITIONS = {
    "Evidence": "What a stake of 1 has become that bets, sample after sample, that the stream is not like the "
    "calibration data. If it is, the stake ever reaches 1/α with probability α at most, however long the stream.",
    "Alarm": "Raised at the first sample at which the evidence reaches 1/α. It stays if the evidence falls again.",
    "Since": "The sample from which on a bet has gained most, as estimated when the alarm was raised.",
    "Flagged": "Samples whose regret exceeds the threshold of the detector. Of samples like the calibration data, the "
    "expected share is flagged on average.",
    "p-value": "The share of calibration samples and of earlier samples of the stream with a larger regret; equal ones "
    "are decided by chance. Of a stream like the calibration data, all bars are equally high but for chance.",
}


def write_monitor(
    monitor: Monitor,
    path: str | os.PathLike[str],
    *,
    title: str = "Monitor",
    facts: Mapping[str, str] | None = None,
    class_names: Sequence[str] = (),
) -> Path:
    """Write the page of a monitor as one self-contained HTML file, atomically, and return its path.

    Args:
        monitor: that has seen one sample at least.
        path: of the file; missing folders are created.
        title: of the page.
        facts: details of the stream, by name.
        class_names: by class number.

    >>> import tempfile
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from pnml import Monitor
    >>> from pnml.core.calibration import calibrate
    >>> monitor = Monitor(calibrate(np.arange(99.0)))
    >>> _ = monitor.update(np.full(30, 200.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_monitor(monitor, Path(folder) / "monitor.html")
    ...     "since sample 1" in page.read_text(encoding="utf-8")
    True
    """
    return write_text(path, render_monitor(monitor, title=title, facts=facts or {}, class_names=class_names))


def render_monitor(monitor: Monitor, *, title: str, facts: Mapping[str, str], class_names: Sequence[str]) -> str:
    """Return the page as HTML."""
    if not monitor.count:
        raise ValueError("the monitor has seen no samples: update it first, monitor.update(result)")
    check_class_names(class_names, monitor.threshold.n_classes, "the calibration")
    tables = [class_table(monitor, class_names), depth_table(monitor)]
    drivers = "\n".join(render_table(table) for table in tables if table is not None)
    sections = [
        _overview(monitor),
        _chart("evidence", "Evidence of a change", "Evidence over the stream"),
        _chart("rates", "Flagged over time", "Share of flagged samples over the stream"),
        _chart("p-values", "p-values", "Histogram of the p-values"),
        _section("drivers", "What drives it" if monitor.alarm_at else "By class and layer", drivers) if drivers else "",
        render_entries("Run details", "run", {**facts, **_own_facts(monitor)}),
        render_entries("Definitions", "definitions", _DEFINITIONS),
    ]
    return render_document(
        kind="pNML monitor",
        title=title,
        facts={"Samples": f"{monitor.count:,}", **facts},
        sections="\n".join(filter(None, sections)),
        data=monitor_data(monitor),
        styles=("report.css", "monitor.css"),
        scripts=("drawing.js", "axes.js", "monitor.js"),
    )


def monitor_data(monitor: Monitor) -> dict[str, Any]:
    """Return the data of the page's charts, ready for JSON; its size does not depend on the number of samples."""
    history, threshold, length = monitor.history, monitor.threshold, monitor.history.length
    low, high = expected_interval(threshold)
    return {
        "count": monitor.count,
        "alarmAt": monitor.alarm_at,
        "since": monitor.since,
        "limit": -math.log10(monitor.alpha),
        "window": history.window,
        "evidence": (history.peak[:length] / math.log(10)).round(4).tolist(),
        "rates": [_rate(history.period(*edges)) for edges in pairwise(_edges(history))],
        "expected": {"share": threshold.false_alarm_rate, "low": low, "high": high},
        "pValues": [{"name": str(one), "bins": one.p_values.tolist()} for one in monitor.periods],
    }


def _edges(history: History) -> list[int]:
    """Return the windows at which rates over time begin, and the end; a short last one belongs to the one before."""
    together = max(math.ceil(history.length / _MOST_RATES), math.ceil(_LEAST_SAMPLES / history.window))
    starts = list(range(0, history.length, together))
    if len(starts) > 1 and history.count - starts[-1] * history.window < together * history.window / 2:
        starts.pop()
    return [*starts, history.length]


def _rate(period: Period) -> dict[str, Any]:
    low, high = period.interval(CONFIDENCE)
    return {"first": period.first, "last": period.last, "share": period.share, "low": low, "high": high}


def _overview(monitor: Monitor) -> str:
    """Return the verdict and the main numbers."""
    last, rate = monitor.periods[-1], 100 * monitor.threshold.false_alarm_rate
    low, high = last.interval(CONFIDENCE)
    peak = monitor.log_peak / math.log(10)
    tiles = {
        "Largest evidence": (_power(peak), f"{1 / monitor.alpha:,.6g} raises an alarm"),
        "Changed since sample": (
            "–" if monitor.since is None else f"{monitor.since:,}",
            "no alarm" if monitor.alarm_at is None else f"alarm at sample {monitor.alarm_at:,}",
        ),
        "Flagged": (
            f"{last.share:.1%}",
            f"of {last}, {low:.1%} to {high:.1%} with {CONFIDENCE:.0%} confidence; {rate:.4g}% expected",
        ),
    }
    rendered = "".join(
        f'<div class="tile"><h3>{name}</h3><p class="big"><span class="value">{value}</span></p>'
        f'<p class="details">{details}</p></div>\n'
        for name, (value, details) in tiles.items()
    )
    promise = (
        f"If the stream were like the calibration data, evidence of {1 / monitor.alpha:,.6g} would ever be reached "
        f"with a probability of {100 * monitor.alpha:.4g}% at most."
    )
    sentence = escape(monitor.verdict[0].upper() + monitor.verdict[1:] + ".")
    answer = re.sub(r"10\^([\d.]+)", r"10<sup>\1</sup>", sentence)
    return f"""<section class="overview" aria-labelledby="overview-title">
<h2 id="overview-title" class="visually-hidden">Summary</h2>
<div class="verdict {"more" if monitor.alarm_at else "same"}"><p class="answer">{answer}</p>
<p class="muted">{promise}</p></div>
<div class="tiles">{rendered}</div>
</section>"""


def _chart(key: str, title: str, name: str) -> str:
    return _section(key, title, f'<p class="legend" id="{key}-legend"></p>\n{render_plot(key, name)}')


def _section(key: str, title: str, contents: str) -> str:
    return f"""<section class="panel" aria-labelledby="{key}-title">
<h2 id="{key}-title">{title}</h2>
{contents}
</section>"""


def _own_facts(monitor: Monitor) -> dict[str, str]:
    threshold, rate = monitor.threshold, 100 * monitor.threshold.false_alarm_rate
    return {
        "Samples": f"{monitor.count:,}, {monitor.history.flagged.sum():,} of them flagged",
        "Calibration": f"{threshold.count:,} {threshold.source} samples, to flag {rate:.4g}%",
        "False alarms": f"α = {monitor.alpha:g}: the probability of one or more, ever",
    }


def _power(log10: float) -> str:
    """Return evidence as HTML, as a power of ten where it is large."""
    return f"10<sup>{log10:.1f}</sup>" if log10 >= 4 else f"{10**log10:.3g}"
