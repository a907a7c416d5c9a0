"""Read the tables that ``pnml score`` writes, also as the next samples of a stream that a monitor watches."""

from __future__ import annotations

import csv
import hashlib
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.read_errors import names_its_file
from pnml.io.feature_columns import list_names
from pnml.io.parquet_files import open_parquet
from pnml.io.scores import DTYPES, LEVERAGE, STRANGEST, layer_labels, unescape_formula
from pnml.io.texts import as_texts

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from pnml.core.monitor import Monitor

_KINDS: dict[str, Any] = {"id": object, **DTYPES, STRANGEST: object}
_REQUIRED = ("id", "regret")
_ROWS_AT_ONCE = 1 << 16
_MOST_OFF = 0.01  # the share of p-values that rounding may change by a rank
_AGAIN = "score the samples with it, or start over with another --state and this detector"


@names_its_file
def read_scores(path: Path) -> dict[str, NDArray[Any]]:
    """Return ids (as text), regrets and, where the table has them, the other columns that ``pnml score`` writes.

    The table is a .csv or .parquet file, or a folder of .parquet files.
    """
    columns = _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)
    missing = [name for name in _REQUIRED if name not in columns]
    if missing:
        raise ValueError(
            f"{path} has no column {missing[0]!r}, only {list_names([*columns])}: expected a table that 'pnml score' "
            "wrote"
        )
    if not columns["id"]:
        raise ValueError(f"{path} has no rows: score something first")
    try:
        return {name: _column(values, _kind(name)) for name, values in columns.items() if _kind(name)}
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is no table of scores ({error}): write it again") from error


def _kind(name: str) -> Any:
    """Return the dtype of a column; None for a column that is not read."""
    return np.float64 if name.startswith(LEVERAGE) else _KINDS.get(name)


def _column(values: list[Any], kind: Any) -> NDArray[Any]:
    if kind is object:
        return as_texts(values)
    if kind is np.bool_:
        values = [_decision(value) for value in values]
    return np.asarray(values, dtype=kind)


def _decision(value: Any) -> bool:
    """Return a decision that is stored as such, or as text, also as pandas writes it."""
    text = str(value).lower()
    if text not in {"true", "false"}:
        raise ValueError(f"is_ood is {value!r}, expected true or false")
    return text == "true"


def _read_csv(path: Path) -> dict[str, list[Any]]:
    with path.open(encoding="utf-8-sig", newline="") as file:  # which Excel begins with a mark
        names, *rows = list(csv.reader(file)) or [[]]
    if any(len(row) != len(names) for row in rows):
        raise ValueError(f"{path} has rows of different lengths: write it again")
    columns: dict[str, list[Any]] = {name: [row[number] for row in rows] for number, name in enumerate(names)}
    if "id" in columns:
        columns["id"] = [unescape_formula(text) for text in columns["id"]]
    return columns


def _read_parquet(path: Path) -> dict[str, list[Any]]:
    if path.suffix != ".parquet" and not path.is_dir():
        raise ValueError(f"{path} is no table of scores: expected a .parquet or .csv that 'pnml score' wrote")
    tables = sorted(path.glob("*.csv"))
    if tables and not any(path.glob("*.parquet")):
        raise ValueError(f"{path} is a folder: name its tables themselves, as {tables[0]}")
    file = open_parquet(path)
    columns: dict[str, list[Any]] = {name: [] for name in file.schema.names if _kind(name)}
    for _, table in file.tables(list(columns), 0, _ROWS_AT_ONCE):
        for name, values in columns.items():
            values.extend(table.column(name).to_pylist())
    return columns


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


def _digest(table: dict[str, NDArray[Any]]) -> str:
    """Return a digest of the ids and regrets of a table."""
    digest = hashlib.sha256(table["regret"].tobytes())
    digest.update("\n".join(table["id"]).encode(errors="surrogateescape"))
    return digest.hexdigest()


def _layers(path: Path, names: NDArray[Any], layer_names: tuple[str, ...]) -> NDArray[np.int64]:
    labels = layer_labels(layer_names)
    unknown = sorted(set(names.tolist()) - set(labels))
    if unknown:
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
