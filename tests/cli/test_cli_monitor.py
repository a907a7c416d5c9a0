"""``pnml monitor`` on tables of ``pnml score``: alarms, state that resumes, and what is refused."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from pnml import Detector, Monitor
from pnml.io.locks import lock_folder
from pnml.report.monitored import write_monitor

from .cli_files import FEATURES, fails, make_files, run, succeeds
from .test_cli_json import documented_inner_keys, documented_keys

if TYPE_CHECKING:
    from .cli_files import Files

KNOWN, STRANGE = 99, 150
STATE = ("--state", "monitor.safetensors")
DETECTOR = ("--detector", "detector.safetensors")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Tables of a day with known samples, and of one with strange ones."""
    monkeypatch.chdir(tmp_path)
    files = make_files(tmp_path)
    rows = {"fit": files.train[:120], "calibrate": files.train[120:], "monday": files.held}
    rows["tuesday"] = 4 * np.random.default_rng(5).normal(size=(STRANGE, FEATURES)).astype(np.float32)
    for name, held in rows.items():
        np.save(files / f"{name}.npy", held)
    succeeds("fit", "--embeddings", "fit.npy", "--head", "head.npz", "--out", "detector.safetensors")
    succeeds("calibrate", "detector.safetensors", "--embeddings", "calibrate.npy", "--false-alarm-rate", "0.1")
    for day, suffix in (("monday", "csv"), ("tuesday", "parquet")):
        succeeds("score", "detector.safetensors", "--embeddings", f"{day}.npy", "--out", f"{day}.{suffix}")
    return files


def monitored(*words: object, code: int = 0) -> str:
    done = run("monitor", *words)
    assert done.exit_code == code, done.output
    return done.stdout


def test_class_names_are_counted(files: Files) -> None:
    for names in ("one\ntwo\n", "one\ntwo\nthree\nfour\n"):
        (files / "names.txt").write_text(names)
        said = fails("monitor", "monday.csv", *DETECTOR, *STATE, "--classes", "names.txt")
        assert (
            f"{names.count(chr(10))} class names in names.txt for the 3 classes of the calibration of detector" in said
        )
        assert not Path("monitor.safetensors").exists()  # nothing was taken in
    (files / "names.txt").write_text("one\ntwo\nthree\n")
    monitored("tuesday.parquet", *DETECTOR, "--classes", "names.txt", code=3)
    with pytest.raises(ValueError, match="1 class names for the 3 classes of the calibration"):
        write_monitor(_seen(files), files / "page.html", class_names=["one"])


def _seen(files: Files) -> Monitor:
    detector = Detector.load(files / "detector.safetensors")
    monitor = Monitor(detector)
    monitor.update(detector(files.held))
    return monitor


def test_a_stream_without_a_change_exits_with_0_and_with_one_with_3(files: Files) -> None:
    said = monitored("monday.csv", *DETECTOR, *STATE)
    assert f"took in {KNOWN} rows, {KNOWN} samples in all\nno change noticed" in said
    assert "wrote monitor.html and monitor.safetensors" in said
    said = monitored("tuesday.parquet", *STATE, code=3)
    assert f"took in {STRANGE} rows, {KNOWN + STRANGE} samples in all" in said
    assert "the stream no longer looks like the calibration data: evidence 10^" in said
    found = re.search(r"since sample (\d+)\nalarm at sample (\d+)", said)
    assert found
    assert abs(int(found[1]) - KNOWN) < 20
    assert KNOWN < int(found[2]) < KNOWN + 50
    assert "Changed since sample" in (files / "monitor.html").read_text(encoding="utf-8")


def test_json_has_what_the_library_finds(files: Files) -> None:
    done = run("monitor", "monday.csv", "tuesday.parquet", *DETECTOR, "--json", "--alpha", "0.001")
    assert done.exit_code == 3
    found = json.loads(done.stdout)
    assert set(found) == documented_keys("monitor") | {"warnings"}
    detector = Detector.load("detector.safetensors")
    expected = Monitor(detector, alpha=0.001)
    for day in ("monday", "tuesday"):
        expected.update(detector(np.load(f"{day}.npy")))
    assert (found["samples"], found["alpha"]) == (KNOWN + STRANGE, 0.001)
    assert (found["alarm_at"], found["since"]) == (expected.alarm_at, expected.since)
    assert found["log10_peak"] == pytest.approx(expected.log_peak / np.log(10))
    assert found["flagged"] == expected.history.flagged.sum()
    assert set(found["periods"][0]) == documented_inner_keys("monitor", "periods")
    assert [one["flagged"] for one in found["periods"]] == [one.flagged for one in expected.periods]
    assert found["expected"] == 0.1
    assert found["classes"]


def test_names_and_title_are_on_the_page(files: Files) -> None:
    (files / "names.txt").write_text("ant\nbee\ncat\n")
    said = monitored("tuesday.parquet", *DETECTOR, "--classes", "names.txt", "--title", "Camera & 3", code=3)
    assert re.search(r"flagged above expectation most: class (ant|bee|cat)", said)
    text = (files / "monitor.html").read_text(encoding="utf-8")
    assert "<h1>Camera &amp; 3</h1>" in text
    assert '<th scope="row">bee</th>' in text


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["monday.csv"], "give the detector, or a --state that exists"),
        (["monday.csv", *STATE], "give the detector, or a --state that exists"),
        (["monday.csv", *DETECTOR, "--alpha", "1"], "1.0 does not lie between 0 and 1"),
        (["monday.csv", "monday.csv", *DETECTOR], "monday.csv was taken in before, and its rows would count twice"),
        (["detector.safetensors", *DETECTOR], "detector.safetensors is no table of scores"),
        (["monday.csv", *DETECTOR, "--out", "monday.csv"], "would be written over"),
        (["monday.csv", *DETECTOR, "--state", "detector.safetensors"], "would be written over"),
        (["monday.csv", *DETECTOR, *STATE, "--out", "monitor.safetensors"], "monitor.safetensors is the --state, too"),
        (["monday.csv", "--state", "other.safetensors"], "give the detector"),
    ],
)
def test_refusals_leave_no_file(words: list[str], message: str, files: Files) -> None:
    before = {path.name for path in files.folder.iterdir()}
    assert message in fails("monitor", *words)
    assert {path.name for path in files.folder.iterdir()} == before


def test_a_refused_table_leaves_the_state_as_it_was(files: Files) -> None:
    monitored("monday.csv", *DETECTOR, *STATE)
    before = (files / "monitor.safetensors").read_bytes()
    assert "taken in before" in fails("monitor", "tuesday.parquet", "monday.csv", *STATE)
    assert "has --alpha 0.01, not 0.1" in fails("monitor", "tuesday.parquet", *STATE, "--alpha", "0.1")
    (files / "broken.csv").write_text("id,regret\n1,one\n")
    assert "broken.csv is no table of scores" in fails("monitor", "broken.csv", *STATE)
    (files / "layered.csv").write_text("id,regret,strangest_layer\n1,0.1,conv9\n")
    assert "layered.csv names the layer 'conv9', which is none of embedding" in fails("monitor", "layered.csv", *STATE)
    (files / "classes.csv").write_text("id,regret,prediction\n1,0.1,7\n")
    assert "expected predictions from 0 to 2, got 7" in fails("monitor", "classes.csv", *STATE)
    with lock_folder(Path("monitor.safetensors.lock")):
        assert "another run writes to" in fails("monitor", "tuesday.parquet", *STATE)
    assert (files / "monitor.safetensors").read_bytes() == before


def test_scores_and_states_of_another_calibration_are_refused(files: Files) -> None:
    monitored("monday.csv", *DETECTOR, *STATE)
    shutil.copy("detector.safetensors", "other.safetensors")
    succeeds("calibrate", "other.safetensors", "--embeddings", "held.npy", "--false-alarm-rate", "0.1")
    assert "is of another calibration" in fails("monitor", "tuesday.parquet", "--detector", "other.safetensors", *STATE)
    succeeds("score", "other.safetensors", "--embeddings", "tuesday.npy", "--out", "other.csv")
    assert "other.csv was scored with another detector or calibration" in fails("monitor", "other.csv", *STATE)


def test_a_detector_without_a_threshold_is_refused(files: Files) -> None:
    files.fitted()
    assert "has no threshold: pnml calibrate detector.safetensors" in fails("monitor", "monday.csv", *DETECTOR)


def test_scores_alone_are_enough(files: Files) -> None:
    (files / "bare.csv").write_text("id,regret\n" + "".join(f"{row},1.0\n" for row in range(40)))
    said = monitored("bare.csv", *DETECTOR, code=3)
    assert "since sample 1" in said
    assert "flagged above expectation" not in said
