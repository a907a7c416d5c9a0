"""Read the tables that ``pnml score`` writes."""

from __future__ import annotations

import csv
from typing import TYPE_CHECKING, Any

import numpy as np

from pnml.backend.read_errors import names_its_file
from pnml.io.feature_columns import list_names
from pnml.io.parquet_files import open_parquet
from pnml.io.scores import DTYPES, LEVERAGE, STRANGEST, unescape_formula
from pnml.io.texts import as_texts

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

_KINDS: dict[str, Any] = {"id": object, **DTYPES, STRANGEST: object}
_REQUIRED = ("id", "regret")
_ROWS_AT_ONCE = 1 << 16


@names_its_file
def read_scores(path: Path) -> dict[str, NDArray[Any]]:
    r"""Return ids (as text), regrets and, where the table has them, the other columns that ``pnml score`` writes.

    The table is a .csv or .parquet file, or a folder of .parquet files.

    >>> import tempfile
    >>> from pathlib import Path
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     file = Path(folder) / "scores.csv"
    ...     _ = file.write_text("id,regret,is_ood\na.png,0.25,false\n")
    ...     read_scores(file)
    {'id': array(['a.png'], dtype=object), 'regret': array([0.25]), 'is_ood': array([False])}
    """
    columns = _read_csv(path) if path.suffix == ".csv" else _read_parquet(path)
    if missing := [name for name in _REQUIRED if name not in columns]:
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
    return np.asarray([_decision(value) for value in values] if kind is np.bool_ else values, dtype=kind)


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
    if path.is_dir() and not any(path.glob("*.parquet")) and (tables := sorted(path.glob("*.csv"))):
        raise ValueError(f"{path} is a folder: name its tables themselves, as {tables[0]}")
    file = open_parquet(path)
    columns: dict[str, list[Any]] = {name: [] for name in file.schema.names if _kind(name)}
    for _, table in file.tables(list(columns), 0, _ROWS_AT_ONCE):
        for name, values in columns.items():
            values.extend(table.column(name).to_pylist())
    return columns
