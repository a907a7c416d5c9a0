"""The folder of results: one table of cells, and the runs and settings that its rows refer to.

``cells.csv`` has one row a cell, ``runs.jsonl`` one line a run and ``settings.jsonl`` one line for each distinct set of
settings. Whole lines are appended, so that a killed run loses at most the line it was writing; such a line is
ignored when reading and removed before the next one is written. Of two rows of one cell the later counts.
"""

from __future__ import annotations

import csv
import io
import json
from dataclasses import asdict, astuple, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pnml.backend.read_errors import naming_file
from pnml.metrics import Metrics
from pnml_bench.results import PAPER_STUDY, STAGES, Result, Run, Scores, digest

if TYPE_CHECKING:
    import os

_RUNS, _SETTINGS = "runs.jsonl", "settings.jsonl"
_KEY = ("study", "model", "ind", "ood", "method")
_METRICS = tuple(field.name for field in fields(Metrics))
_WITH_PNML = tuple(f"{name}_with_pnml" for name in _METRICS)
_COUNTS = {"train": "n_train", "ind": "n_ind", "ood": "n_ood"}
_FACTS = ("seeds", "checkpoint", "accuracy", "rank", "memory_bytes", "memory_device")
_SECONDS = {stage: f"seconds_{stage}" for stage in STAGES}
_ORIGIN = ("date", "run", "settings", "reason")
COLUMNS = (*_KEY, *_METRICS, *_WITH_PNML, *_COUNTS.values(), *_FACTS, *_SECONDS.values(), *_ORIGIN)
"""The columns of ``cells.csv``; "run" and "settings" name lines of the other two files."""


class ResultStore:
    """The results of a folder.

    >>> import tempfile
    >>> absent = Result(model="resnet-34", ind="cifar10", ood="isun", method="odin", reason="data absent: iSUN")
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ResultStore(folder).append(absent)
    ...     ResultStore(folder).load() == [absent]
    True
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self.cells = self.folder / "cells.csv"
        self._runs = self.folder / _RUNS
        self._settings = self.folder / _SETTINGS

    def load(self) -> list[Result]:
        """Read every result, the latest of each cell, ordered by study and cell.

        Raises:
            FileNotFoundError: there is no table in the folder.
            ValueError: the table, or a row of it, cannot be read.
        """
        if not self.cells.is_file():
            raise FileNotFoundError(
                f"there are no results in {str(self.folder)!r}, which has no {self.cells.name}: "
                "name a folder that 'pnml bench' has written to"
            )
        with naming_file(self.cells):
            lines = iter(list(csv.reader(io.StringIO(_whole_lines(self.cells)))))
        header = tuple(next(lines, COLUMNS))
        if header != COLUMNS:
            raise ValueError(f"{self.cells} has the columns {', '.join(header)}, expected {', '.join(COLUMNS)}")
        runs, settings = _read_lines(self._runs, "run"), _read_lines(self._settings, "settings")
        found: dict[tuple[str, ...], Result] = {}
        for number, values in enumerate(lines, start=2):
            try:
                result = _result(dict(zip(COLUMNS, values, strict=True)), runs, settings)
            except KeyError as error:
                raise ValueError(f"{self.cells}, row {number}: no line {error} in the files beside it") from error
            except (TypeError, OverflowError, ValueError) as error:
                raise ValueError(f"{self.cells}, row {number}: {error}; delete the row and run it again") from error
            found[(result.study, *result.key)] = result
        return [found[key] for key in sorted(found)]

    def append(self, result: Result) -> None:
        """Write a result; it replaces an earlier one of the same study and cell when read."""
        row: dict[str, Any] = {name: getattr(result, name) for name in COLUMNS if hasattr(result, name)}
        row |= {name: " ".join(row[name].split()) for name in ("checkpoint", "reason") if row[name]}
        if result.scores is not None:
            row |= asdict(result.scores.method)
            if result.scores.plus_pnml is not None:
                row |= dict(zip(_WITH_PNML, astuple(result.scores.plus_pnml), strict=True))
        row |= {_COUNTS[part]: count for part, count in result.counts.items()}
        row |= {_SECONDS[stage]: seconds for stage, seconds in result.seconds.items()}
        row["seeds"] = " ".join(map(str, result.seeds))
        row["settings"] = digest(result.settings) if result.settings else ""
        row["run"] = result.run.run_id if result.run != Run() else ""
        self.folder.mkdir(parents=True, exist_ok=True)
        _add_line(self._settings, {"settings": row["settings"], "values": result.settings})
        _add_line(self._runs, {"run": row["run"], **asdict(result.run)})
        _append(self.cells, _csv_line(row.get(name) for name in COLUMNS), header=_csv_line(COLUMNS))


def load_study(folder: str | os.PathLike[str], study: str | None = None) -> list[Result]:
    """Read the results of one study.

    Args:
        folder: where ``pnml bench`` has written results.
        study: its name; by default the only one of the folder, or "paper" where there are several.

    Raises:
        FileNotFoundError: there are no results in the folder.
        ValueError: the folder has no such study, or several and none of them is "paper".
    """
    results = ResultStore(folder).load()
    studies = _studies(results)
    if study is None and len(studies) > 1 and PAPER_STUDY not in studies:
        raise ValueError(f"{folder} has results of several studies, {', '.join(studies)}: give --study {studies[0]}")
    if study is None:
        study = studies[0] if len(studies) == 1 else PAPER_STUDY
    if study not in studies:
        raise ValueError(
            f"{folder} has no results of the study {study!r}: choose one of {', '.join(studies) or 'none'}"
        )
    return [result for result in results if result.study == study]


def study_names(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of the studies whose results are in a folder, sorted.

    Raises:
        FileNotFoundError: there are no results in the folder.
    """
    return _studies(ResultStore(folder).load())


def _studies(results: list[Result]) -> list[str]:
    return list(dict.fromkeys(result.study for result in results))


def _result(row: dict[str, str], runs: dict[str, Any], settings: dict[str, Any]) -> Result:
    def number(name: str, kind: Any = float) -> Any:
        return kind(row[name]) if row[name] else None

    scores = None
    if row["auroc"]:
        plus = Metrics(*(float(row[name]) for name in _WITH_PNML)) if row["auroc_with_pnml"] else None
        scores = Scores(Metrics(*(float(row[name]) for name in _METRICS)), plus)
    return Result(
        **{name: row[name] for name in _KEY},
        scores=scores,
        counts={part: int(row[name]) for part, name in _COUNTS.items() if row[name]},
        seeds=tuple(map(int, row["seeds"].split())),
        checkpoint=row["checkpoint"] or None,
        accuracy=number("accuracy"),
        rank=number("rank", int),
        memory_bytes=number("memory_bytes", int),
        memory_device=row["memory_device"] or None,
        seconds={stage: float(row[name]) for stage, name in _SECONDS.items() if row[name]},
        date=row["date"],
        run=_run(runs[row["run"]]) if row["run"] else Run(),
        settings=_settings(settings[row["settings"]]) if row["settings"] else {},
        reason=row["reason"] or None,
    )


def _run(entries: dict[str, Any]) -> Run:
    kinds = {"command": str, "commit": str | None, "dirty": bool | None, "device": str, "versions": dict, "date": str}
    if odd := [name for name, value in entries.items() if not isinstance(value, kinds.get(name, ()))]:
        raise ValueError(f"{odd[0]!r} of its line in {_RUNS} is {str(entries[odd[0]])[:80]!r}")
    return Run(**entries)


def _settings(entries: dict[str, Any]) -> dict[str, Any]:
    values: Any = entries.get("values")
    notes = values.get("notes", {}) if isinstance(values, dict) else None
    if not isinstance(notes, dict) or not notes.keys() <= {"train", "ind", "ood"}:
        raise ValueError(f"its line in {_SETTINGS} is {str(values)[:80]!r}, expected settings that pnml bench wrote")
    return dict(values)


def _read_lines(path: Path, name: str) -> dict[str, Any]:
    """Read a file of JSON objects, one a line, as a mapping by their entry ``name``."""
    if not path.exists():
        return {}
    with naming_file(path):
        lines = [dict(json.loads(line)) for line in _whole_lines(path).splitlines()]
        return {line.pop(name): line for line in lines}


def _add_line(path: Path, entries: dict[str, Any]) -> None:
    """Append a JSON object whose first value identifies it, unless that is empty or the line exists."""
    line = json.dumps(entries, allow_nan=False) + "\n"
    if next(iter(entries.values())) and not (path.exists() and line in path.read_text(encoding="utf-8")):
        _append(path, line)


def _whole_lines(path: Path) -> str:
    """Read a file without a last line that was cut off."""
    text = path.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1]


def _append(path: Path, text: str, header: str = "") -> None:
    """Append text in one write, after the header in a new file, in place of a last line that was cut off."""
    with path.open("a+b") as file:
        file.seek(0)
        content = file.read()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):  # never otherwise: another process may have appended a line meanwhile
            file.truncate(whole)
        file.write((text if whole else header + text).encode())


def _csv_line(values: Any) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(values)
    return text.getvalue()
