"""Tables of scores that a monitor takes in: layers by their names, and tables that are not of its detector."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pnml import Monitor
from pnml.core.calibration import calibrate
from pnml.io.score_table import take_in

if TYPE_CHECKING:
    from pathlib import Path

THRESHOLD = calibrate(np.arange(1.0, 100), predictions=np.arange(99) % 3)


@pytest.fixture
def monitor() -> Monitor:
    return Monitor(SimpleNamespace(threshold=THRESHOLD, watched_names=("conv1", "embedding")))


def test_layers_are_found_by_their_names(monitor: Monitor, tmp_path: Path) -> None:
    names = ["conv1", "embedding", "conv1", "embedding (layer)"]
    rows = "".join(f"{row},200,{name}\n" for row, name in enumerate(names))
    (tmp_path / "scores.csv").write_text(f"id,regret,strangest_layer\n{rows}")
    take_in(monitor, tmp_path / "scores.csv")
    assert monitor.count == 4
    assert monitor.periods[0].layer_flagged.tolist() == [1, 2, 1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("0,0,50,0.7", r"row 0 has the p-value 0.7, and 0.51 by the calibration that is monitored"),
        ("0,0,50,nan", r"row 0 has the p-value nan, and 0.51"),
        ("0,9,50,0.51", r"is not of the detector that is monitored \(expected predictions from 0 to 2, got 9\)"),
    ],
)
def test_tables_of_another_detector_are_refused_and_nothing_is_counted(
    row: str, message: str, monitor: Monitor, tmp_path: Path
) -> None:
    (tmp_path / "other.csv").write_text(f"id,prediction,regret,p_value\n{row}\n")
    with pytest.raises(ValueError, match=rf"other.csv .*{message}.*: score the samples with it, or start over"):
        take_in(monitor, tmp_path / "other.csv")
    assert (monitor.count, monitor.tables) == (0, ())


def test_thresholds_by_class_ask_for_classes(tmp_path: Path) -> None:
    by_class = Monitor(calibrate(np.arange(99.0), predictions=np.arange(99) % 3, by="prediction"))
    (tmp_path / "other.csv").write_text("id,regret\n0,50\n")
    with pytest.raises(ValueError, match=r"other.csv is not of the detector that is monitored \(the threshold depends"):
        take_in(by_class, tmp_path / "other.csv")
