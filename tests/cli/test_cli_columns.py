"""Columns of embeddings are matched with those of the fit by their names, never by their places."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from pnml import Detector
from pnml.engines import local
from pnml.io.embeddings import open_embeddings

from .cli_files import Files, fails, succeeds, table_of

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

NAMES = [f"f{number}" for number in range(8)]
ORDER = [0, 7, 1, 2, 3, 4, 5, 6]  # as of names in alphabetical order, f0, f10, f1


def write(path: Path, rows: NDArray[np.float32], names: list[str], order: list[int]) -> Path:
    table = pa.table({names[number]: rows[:, number] for number in order})
    if path.suffix == ".csv":
        pyarrow.csv.write_csv(table, path)
    else:
        pq.write_table(table, path)
    return path


def fit(files: Files, path: Path, *words: str) -> Path:
    detector = files / "columns.safetensors"
    succeeds("fit", "--embeddings", path, "--head", files / "head.npz", "--out", detector, *words)
    return detector


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("chosen", [(), ("--column", "f*")])
def test_columns_in_another_order_are_scored_by_name(files: Files, suffix: str, chosen: tuple[str, ...]) -> None:
    detector = fit(files, write(files / f"train.{suffix}", files.train, NAMES, list(range(8))), *chosen)
    held, new = (write(files / f"{n}.{suffix}", getattr(files, n), NAMES, ORDER) for n in ("held", "new"))
    expected = files.fitted(calibrated=True)
    for path, words in ((expected, ("held.npy", "new.npy")), (detector, (held.name, new.name))):
        succeeds("calibrate", path, "--embeddings", files / words[0])
        succeeds("score", path, "--embeddings", files / words[1], "--out", files / f"{path.stem}.csv")
    assert table_of(files / "columns.csv") == table_of(files / "detector.csv")
    succeeds("score", detector, "--embeddings", new, "--column", "f*", "--out", files / "asked.csv")
    assert table_of(files / "asked.csv") == table_of(files / "detector.csv")
    assert f"columns    {', '.join(NAMES)}\n" in succeeds("inspect", detector)


def test_missing_and_unknown_columns_are_refused_by_name(files: Files) -> None:
    detector = fit(files, write(files / "train.csv", files.train, NAMES, list(range(8))))
    path = write(files / "new.csv", files.new, [*NAMES[:7], "g7"], list(range(8)))
    message = f"{path} has not the columns that the detector was fitted on, it lacks f7 and has g7 instead: rename them"
    for command in ("score", "calibrate"):
        assert message in fails(command, detector, "--embeddings", path)
    path = write(files / "more.csv", np.hstack([files.new, files.new]), [*NAMES, *"abcdefgh"], list(range(9)))
    assert "it has a besides: rename them, or choose columns" in fails("score", detector, "--embeddings", path)
    succeeds("score", detector, "--embeddings", path, "--column", ",".join(NAMES), "--out", files / "s.csv")


def test_engines_refuse_columns_in_another_order(files: Files) -> None:
    detector = Detector.load(fit(files, write(files / "train.csv", files.train, NAMES, list(range(8)))))
    new = write(files / "new.csv", files.new, NAMES, ORDER)
    with pytest.raises(ValueError, match=r"not in the order of the fit, f0, f1, .*: open_embeddings\(path, fitted="):
        local.score(open_embeddings(new), detector, files / "s.csv", progress=False)
    local.score(open_embeddings(new, fitted=detector.preparation), detector, files / "s.csv", progress=False)
    assert (files / "s.csv").exists()
