"""A monitor as arrays and entries to be stored, and back, checked for what its evidence depends on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.core.history import BINS, MOST_WINDOWS, SMALLEST_WINDOW, History
from pnml.core.martingale import BETS, STATE, Martingale
from pnml.core.ranks import RankPool
from pnml.core.state_checks import are_texts, check_arrays, check_info, is_count, is_number, is_share, length_of
from pnml.core.threshold_state import (
    check_threshold_arrays,
    check_threshold_info,
    expected_threshold_arrays,
    threshold_from_state,
    threshold_to_state,
)

if TYPE_CHECKING:
    from pnml.core.monitor import Monitor
    from pnml.core.state_checks import Arrays, Rules, Shape

KIND, VERSION = "pnml.monitor", 1

_PREFIX = "history."
_BETS = [list(bet) for bet in BETS]
_RULES: Rules = {
    "alpha": (is_share, "a number between 0 and 1"),
    "seed": (is_count, "a whole number, not negative"),
    "count": (is_count, "a whole number, not negative"),
    "window": (lambda value: is_count(value) and value >= SMALLEST_WINDOW, f"at least {SMALLEST_WINDOW}"),
    "log_evidence": (is_number, "a number"),
    "log_peak": (lambda value: is_number(value) and value >= 0, "a number, not negative"),
    "alarm_at": (lambda value: value is None or (is_count(value) and value > 0), "null or the number of a sample"),
    "since": (lambda value: value is None or (is_count(value) and value > 0), "null or the number of a sample"),
    "layer_names": (are_texts, "a list of names"),
    "tables": (are_texts, "a list of digests"),
    "bets": (lambda value: value == _BETS, "those of this version of pnml"),
    "threshold": (lambda value: isinstance(value, dict), "names with values"),
}
_KEPT = ("log_evidence", "log_peak", "alarm_at", "since")


def to_state(monitor: Monitor) -> tuple[Arrays, dict[str, Any]]:
    """Return the arrays of a monitor, and what else there is to store."""
    arrays, threshold = threshold_to_state(monitor.threshold)
    history, pool = monitor.history, monitor._pool  # noqa: SLF001 - its own state
    arrays |= {"keys": pool.keys, "counts": pool.counts, **monitor._martingale.arrays()}  # noqa: SLF001
    arrays |= {f"{_PREFIX}{name}": array for name, array in history.arrays().items()}
    info = {name: getattr(monitor, name) for name in ("alpha", "seed", "count", *_KEPT)}
    info |= {"window": history.window, "bets": _BETS, "threshold": threshold}
    info |= {"layer_names": monitor.layer_names, "tables": monitor.tables}
    return arrays, info


def from_state(arrays: Arrays, info: dict[str, Any]) -> dict[str, Any]:
    """Return the attributes of the monitor that :func:`to_state` was given; raise ``ValueError`` if it is none."""
    check_info(info, _RULES, {*_RULES}, closed=True)
    check_threshold_info(info["threshold"])
    check_arrays(arrays, _expected(arrays, info))
    check_threshold_arrays(arrays, info["threshold"])
    history = {name.removeprefix(_PREFIX): array for name, array in arrays.items() if name.startswith(_PREFIX)}
    threshold, count = threshold_from_state(arrays, info["threshold"]), info["count"]
    _check_counts(arrays, history, threshold.count, info)
    kept = {name: info[name] for name in ("alpha", "seed", *_KEPT)}
    return kept | {
        "threshold": threshold,
        "layer_names": tuple(info["layer_names"]),
        "tables": tuple(info["tables"]),
        "history": History.restore(count, info["window"], history),
        "_pool": RankPool.restore(arrays["keys"], arrays["counts"]),
        "_martingale": Martingale.restore(count, arrays),
    }


def _expected(arrays: Arrays, info: dict[str, Any]) -> dict[str, tuple[str, Shape]]:
    """Return the dtype and the shape that each array must have."""
    keys = length_of(arrays, "keys", 1)
    classes = length_of(arrays, f"{_PREFIX}class_samples", 2, axis=1)
    expected = expected_threshold_arrays(arrays, info["threshold"])
    expected |= {"keys": ("float64", (keys,)), "counts": ("int64", (keys,))}
    expected |= {name: ("int64" if name == "lowest_at" else "float64", (len(BETS),)) for name in STATE}
    widths = {"p_values": (BINS,), "class_samples": (classes,), "class_flagged": (classes,)}
    widths |= {"layer_flagged": (1 + len(info["layer_names"]),)}
    for name, array in History(0, 0).arrays().items():
        expected[f"{_PREFIX}{name}"] = str(array.dtype), (MOST_WINDOWS, *widths.get(name, ()))
    return expected


def _check_counts(arrays: Arrays, history: Arrays, calibrated: int, info: dict[str, Any]) -> None:
    """Check the numbers of samples against each other, and that those seen are in order."""
    count = info["count"]
    if (np.diff(arrays["keys"]) <= 0).any() or (arrays["counts"] < 1).any():
        raise ValueError("the rounded scores are not ascending, or some were not seen")
    if arrays["counts"].sum() != calibrated + count or history["samples"].sum() != count:
        raise ValueError(f"the scores that were seen are not {calibrated} of the calibration and {count} of the stream")
    alarm_at, since = info["alarm_at"], info["since"]
    is_alarm = since is not None and alarm_at is not None and since <= alarm_at <= count
    if not (is_alarm or since is alarm_at is None) or count > MOST_WINDOWS * info["window"]:
        raise ValueError(f"alarm and windows do not fit {count} samples")
