"""Tables of scores as the next samples of a stream that a monitor watches."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.io.score_table import read_scores
from pnml.io.scores import STRANGEST, layer_labels

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.core.monitor import Monitor

_MOST_OFF = 0.01  # the share of p-values that rounding may change by a rank


def take_in(monitor: Monitor, path: Path) -> None:
    """Update a monitor with a table that ``pnml score`` wrote, in the order of its rows.

    Raises:
        ValueError: the table was taken in before, or was scored with another detector or calibration.
    """
    table = read_scores(path)
    digest = _digest(table)
    if digest in monitor.tables:
        raise ValueError(
            f"{path} was taken in before, and its rows would count twice: give new tables, or start over with another "
            "--state"
        )
    prediction = table.get("prediction")
    layers = _layers(path, table[STRANGEST], monitor.layer_names) if STRANGEST in table else None
    _check_p_values(monitor, path, table)
    try:
        monitor.update(table["regret"], prediction, layers)
    except ValueError as error:
        raise ValueError(f"{path} is not of the detector that is monitored ({error}): {_AGAIN}") from error
    monitor.tables = (*monitor.tables, digest)


_AGAIN = "score the samples with it, or start over with another --state and this detector"


def _digest(table: dict[str, NDArray[Any]]) -> str:
    """Return a digest of the ids and regrets of a table."""
    digest = hashlib.sha256(table["regret"].tobytes())
    digest.update("\n".join(table["id"]).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _layers(path: Path, names: NDArray[Any], layer_names: tuple[str, ...]) -> NDArray[np.int64]:
    labels = layer_labels(layer_names)
    if unknown := sorted(set(names.tolist()) - set(labels)):
        raise ValueError(f"{path} names the layer {unknown[0]!r}, which is none of {', '.join(labels)}: {_AGAIN}")
    numbers = {label: number for number, label in enumerate(labels)}
    return np.array([numbers[name] for name in names.tolist()], dtype=np.int64)


def _check_p_values(monitor: Monitor, path: Path, table: dict[str, NDArray[Any]]) -> None:
    """Raise ``ValueError`` if the p-values of a table are not those of the monitor's calibration scores."""
    if "p_value" not in table or "prediction" not in table:
        return
    threshold = monitor.threshold
    try:
        expected = threshold.p_value(table["regret"], table["prediction"])
    except ValueError as error:
        raise ValueError(f"{path} is not of the detector that is monitored ({error}): {_AGAIN}") from error
    is_off = ~np.isclose(table["p_value"], expected, rtol=1e-5)
    if is_off.mean() > _MOST_OFF:
        row = int(is_off.argmax())
        raise ValueError(
            f"{path} was scored with another detector or calibration: row {row} has the p-value "
            f"{table['p_value'][row]:.4g}, and {expected[row]:.4g} by the calibration that is monitored: {_AGAIN}"
        )
