"""The page of a monitor: is the stream still like the calibration data, since when not, and what drives it?"""

from __future__ import annotations

import math
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from pnml.backend.files import write_text
from pnml.report.by_class import CONFIDENCE, expected_interval
from pnml.report.checks import check_class_names
from pnml.report.document import render_document
from pnml.report.stream_tables import class_table, depth_table
from pnml.report.tables import layout

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from pnml.core.history import History, Period
    from pnml.core.monitor import Monitor

_MOST_RATES = 32
_LEAST_SAMPLES = 50  # of a rate over time, where the stream has them
_UNITS = (("billion", 1e9), ("million", 1e6), ("thousand", 1e3))


def write_monitor(
    monitor: Monitor,
    path: str | os.PathLike[str],
    *,
    title: str = "Monitor",
    facts: Mapping[str, str] | None = None,
    class_names: Sequence[str] = (),
    parts: Mapping[str, int] | None = None,
) -> Path:
    """Write the page of a monitor as one self-contained HTML file, atomically, and return its path.

    Args:
        monitor: that has seen one sample at least.
        path: of the file; missing folders are created.
        title: of the page.
        facts: details of the stream, by name.
        class_names: by class number.
        parts: the first sample of each day, file or camera of the stream by its name, for the axes of the charts.

    >>> import tempfile
    >>> import numpy as np
    >>> from pathlib import Path
    >>> from pnml import Monitor
    >>> from pnml.core.calibration import calibrate
    >>> monitor = Monitor(calibrate(np.arange(99.0)))
    >>> _ = monitor.update(np.full(30, 200.0))
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     page = write_monitor(monitor, Path(folder) / "monitor.html", parts={"Monday": 1, "Tuesday": 16})
    ...     "since sample 1" in page.read_text(encoding="utf-8")
    True
    """
    page = render_monitor(monitor, title=title, facts=facts or {}, class_names=class_names, parts=parts or {})
    return write_text(path, page)


def render_monitor(
    monitor: Monitor,
    *,
    title: str,
    facts: Mapping[str, str],
    class_names: Sequence[str] = (),
    parts: Mapping[str, int] | None = None,
) -> str:
    """Return the page as HTML."""
    if not monitor.count:
        raise ValueError("the monitor has seen no samples: update it first, monitor.update(result)")
    check_class_names(class_names, monitor.threshold.n_classes, "the calibration")
    tables = (class_table(monitor, class_names), depth_table(monitor))
    last = monitor.periods[-1]
    return render_document(
        "monitor.html",
        scripts=("drawing.js", "axes.js", "monitor.js"),
        kind="pNML monitor",
        title=title,
        facts={"Samples": f"{monitor.count:,}", **facts},
        data=monitor_data(monitor, parts or {}),
        monitor=monitor,
        last=last,
        interval=last.interval(CONFIDENCE),
        log10_peak=monitor.log_peak / math.log(10),
        peak_in_words=in_words(monitor.log_peak / math.log(10)),
        tables=[layout(table) for table in tables if table is not None],
    )


def in_words(log10: float) -> str:
    """Return how rare evidence is without any change: by Ville's inequality it is ever reached with 1 in its size.

    >>> [in_words(log10) for log10 in (6.5, 2.3, 0.2, 40)]  # doctest: +NORMALIZE_WHITESPACE
    ['at most once in 3.2 million streams', 'at most once in 200 streams', 'in at most 63% of streams',
     'less than once in a billion streams']
    """
    if log10 >= 12:
        return "less than once in a billion streams"
    if log10 < 1:
        return f"in at most {10 ** -max(log10, 0):.0%} of streams"
    count = 10**log10
    name, unit = next(((name, unit) for name, unit in _UNITS if count >= unit), ("", 1.0))
    return " ".join(f"at most once in {float(f'{count / unit:.2g}'):g} {name} streams".split())


def monitor_data(monitor: Monitor, parts: Mapping[str, int] | None = None) -> dict[str, Any]:
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
        "parts": [{"name": name, "first": first} for name, first in (parts or {}).items()],
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
