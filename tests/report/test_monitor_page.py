"""The page of a monitor: its numbers against explicit counts."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

from pnml import Monitor
from pnml.core.calibration import calibrate
from pnml.report.monitored import monitor_data, render_monitor, write_monitor
from pnml.report.stream_tables import class_table, depth_table

from .factories import CHANGED, LAYERS, QUIET, changed, page_data_of, quiet

if TYPE_CHECKING:
    from pathlib import Path

PARTS = {"monday.csv": 1, "tuesday.csv": 701}


def test_page_says_what_the_monitor_found() -> None:
    monitor = changed()
    page = render_monitor(monitor, title="", facts={"Detector": "detector.safetensors"}, parts=PARTS)
    assert monitor.since is not None
    assert abs(monitor.since - QUIET) < 30
    assert f"evidence 10<sup>{monitor.log_peak / math.log(10):.1f}</sup>, since sample {monitor.since:,}." in page
    assert "so much evidence comes up less than once in a billion streams." in page
    assert f'<span class="value">{monitor.since:,}</span>' in page
    assert f"alarm at sample {monitor.alarm_at:,}" in page
    assert "Detector: detector.safetensors" in page
    assert "What drives it" in page
    assert page_data_of(page) == monitor_data(monitor, PARTS)
    calm = render_monitor(quiet(), title="Calm", facts={})
    assert "No change noticed" in calm
    assert "By class and layer" not in calm  # neither is known
    assert "no alarm" in calm


def test_charts_have_the_numbers_of_the_stream() -> None:
    monitor, data = changed(), monitor_data(changed(), PARTS)
    assert data["parts"] == [{"name": "monday.csv", "first": 1}, {"name": "tuesday.csv", "first": 701}]
    assert data["limit"] == pytest.approx(2)
    assert max(data["evidence"]) == pytest.approx(monitor.log_peak / math.log(10), abs=1e-3)
    rates = data["rates"]
    assert [one["first"] for one in rates] == [1, *(one["last"] + 1 for one in rates[:-1])]
    assert rates[-1]["last"] == QUIET + CHANGED
    assert sum(round(one["share"] * (one["last"] - one["first"] + 1)) for one in rates) == monitor.history.flagged.sum()
    for one in rates:
        count = one["last"] - one["first"] + 1
        interval = stats.binomtest(round(one["share"] * count), count).proportion_ci(0.95, "exact")
        assert (one["low"], one["high"]) == pytest.approx(interval, rel=1e-6)
        assert count >= 50
    assert [sum(one["bins"]) for one in data["pValues"]] == [one.samples for one in monitor.periods]


def test_classes_that_drive_the_change_come_first() -> None:
    table = class_table(changed(), ("ant", "bee", "cat"))
    assert table is not None
    before, since = changed().periods
    row = dict(zip(table.columns, table.rows[0], strict=True))
    assert row["Predicted class"] == "bee"
    assert row["Samples"] == f"{since.class_samples[1]:,}"
    assert row["Flagged"] == f"{since.class_flagged[1]:,}"
    assert row["Above expectation"] == f"{since.class_flagged[1] - 0.05 * since.class_samples[1]:+.1f}"
    assert row["Flagged, %"] == pytest.approx(100 * since.class_flagged[1] / since.class_samples[1])
    assert row["Before, %"] == pytest.approx(100 * before.class_flagged[1] / before.class_samples[1])
    assert f"samples {since.first:,} to {since.last:,}" in table.title
    assert class_table(quiet()) is None


def test_layers_that_gave_the_change_away_are_named_from_input_to_output() -> None:
    table = depth_table(changed())
    assert table is not None
    before, since = changed().periods
    assert [row[0] for row in table.rows] == [*LAYERS, "embedding"]
    assert table.rows[0][1] == f"{since.layer_flagged[1]:,}"
    assert table.rows[0][2] == pytest.approx(100 * since.layer_flagged[1] / since.flagged)
    assert table.rows[-1][3] == pytest.approx(100 * before.layer_flagged[0] / before.flagged)
    assert depth_table(quiet()) is None


def test_a_monitor_of_nothing_has_no_page(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has seen no samples: update it first"):
        write_monitor(Monitor(calibrate(np.arange(99.0))), tmp_path / "page.html")
