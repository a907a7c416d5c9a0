"""Test ``pnml report`` on tables written by ``pnml score``."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from PIL import Image
from scipy import stats
from typer.testing import CliRunner, Result

from pnml.cli import app
from pnml.core.detector import Detector
from pnml.io.score_table import read_scores
from pnml.io.scores import score_writer

from .factories import numbered_images, page_data_of

if TYPE_CHECKING:
    from pathlib import Path


def call(*words: object) -> Result:
    return CliRunner().invoke(app, ["report", *(str(word) for word in words)])


def paged(*words: object, out: Path) -> tuple[Result, str]:
    """Return what the command printed, and the page that it wrote."""
    done = call(*words, "--out", out)
    assert done.exit_code == 0, done.output
    return done, out.read_text(encoding="utf-8")


def written(path: Path, table: dict[str, np.ndarray[Any, Any]]) -> Path:
    score_writer(path)(path, [table])
    return path


@pytest.fixture
def detector() -> Detector:
    rng = np.random.default_rng(0)
    fitted = Detector(rng.normal(size=(3, 5)), rng.normal(size=3)).fit(rng.normal(size=(300, 5)))
    fitted.calibrate(rng.normal(size=(200, 5)), false_alarm_rate=0.2)
    return fitted


@pytest.fixture
def table(detector: Detector) -> dict[str, np.ndarray[Any, Any]]:
    """Return the scores of forty images, with the file names as ids."""
    found = detector(2 * np.random.default_rng(1).normal(size=(40, 5))).to_table()
    names = ("prediction", "probability", "regret", "p_value", "is_ood")
    return {"id": np.array([f"sub/<{n:02d}> & co.png" for n in range(40)]), **{name: found[name] for name in names}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder of forty images whose first pixel is their number."""
    (tmp_path / "new" / "sub").mkdir(parents=True)
    for number, image in enumerate(numbered_images(40)):
        Image.fromarray(image).save(tmp_path / "new" / "sub" / f"<{number:02d}> & co.png")
    return tmp_path / "new"


@pytest.mark.parametrize("decision", ["", "1", "maybe"])
def test_what_is_no_decision_is_refused(tmp_path: Path, decision: str) -> None:
    (tmp_path / "scores.csv").write_text(f"id,regret,is_ood\na,0.5,{decision}\n")
    with pytest.raises(ValueError, match=rf"scores.csv is no table of scores \(is_ood is '{decision}', expected true"):
        read_scores(tmp_path / "scores.csv")


def test_folder_of_tables_is_read_as_one_table(tmp_path: Path, table: dict[str, np.ndarray[Any, Any]]) -> None:
    (tmp_path / "scores").mkdir()
    for number, rows in enumerate((slice(30), slice(30, None))):
        written(tmp_path / "scores" / f"{number}.parquet", {name: column[rows] for name, column in table.items()})
    np.testing.assert_array_equal(read_scores(tmp_path / "scores")["regret"], table["regret"])
    out = tmp_path / "report.html"
    done, page = paged(tmp_path / "scores", "--json", out=out)
    assert page_data_of(page)["sets"][0]["count"] == 40
    facts = json.loads(done.stdout)
    answer = facts.pop("answers")["scores"]
    assert (answer["kind"], answer["sentence"]) == ("unknown", f"{table['is_ood'].mean():.1%} flagged.")
    assert facts == {"report": str(out), "bytes": out.stat().st_size, "warnings": []}


def test_report_of_scored_folder_with_images_and_detector(
    tmp_path: Path, table: dict[str, np.ndarray[Any, Any]], folder: Path, detector: Detector
) -> None:
    scores, out = written(tmp_path / "scores.csv", table), tmp_path / "pages" / "mine.html"
    detector.save(tmp_path / "detector.safetensors")
    (tmp_path / "names.txt").write_text("ant\nbee\ncat\n", encoding="utf-8")
    (folder / table["id"][np.argmax(table["regret"])]).write_bytes(b"broken")
    given = "--images", folder, "--detector", tmp_path / "detector.safetensors"
    done, page = paged(scores, *given, "--classes", tmp_path / "names.txt", "--title", "My <images>", out=out)
    assert f"wrote {out}" in done.stdout
    data = page_data_of(page)
    assert detector.threshold is not None
    assert data["grid"][data["start"]] == detector.threshold.value
    assert data["spectrum"]["count"] == 5
    assert "My &lt;images&gt;" in page
    assert "fitted on 300 samples, rank 5" in page
    assert (page.count("<img"), page.count("no image")) == (23, 1)
    flagged = data["sets"][0]["count"] - data["sets"][0]["kept"][data["start"]]
    assert flagged == table["is_ood"].sum() > 0
    best = int(np.argmin(table["regret"]))
    assert f"<b>{['ant', 'bee', 'cat'][table['prediction'][best]]}</b> {100 * table['probability'][best]:.1f}%" in page


def test_report_says_what_the_calibration_lets_expect(
    tmp_path: Path, table: dict[str, np.ndarray[Any, Any]], detector: Detector
) -> None:
    scores, out = written(tmp_path / "scores.csv", table), tmp_path / "report.html"
    detector.save(tmp_path / "detector.safetensors")
    done, page = paged(scores, "--detector", tmp_path / "detector.safetensors", out=out)
    assert done.stderr == ""
    low, high = stats.beta(40, 161).interval(0.95)
    for said in (page, done.stdout):
        assert f"20% expected, {table['is_ood'].mean():.1%} flagged: " in said
    assert f"Of data like the 200 calibration samples, this threshold flags {low:.1%} to {high:.1%}." in page
    assert page_data_of(page)["calibration"]["count"] == 200
    alone, page = paged(scores, out=out)
    assert "without --detector the page cannot say how many flagged samples to expect" in alone.stderr
    assert "How many to expect is not known" in page
    assert "No threshold is set" not in alone.stdout + page


def test_detector_that_decides_otherwise_is_refused(
    tmp_path: Path, table: dict[str, np.ndarray[Any, Any]], detector: Detector
) -> None:
    scores = written(tmp_path / "scores.csv", table)
    detector.calibrate(np.random.default_rng(0).normal(size=(200, 5)), false_alarm_rate=0.01)
    detector.save(tmp_path / "detector.safetensors")
    done = call(scores, "--detector", tmp_path / "detector.safetensors", "--out", tmp_path / "report.html")
    assert done.exit_code == 1
    said = " ".join(done.stderr.split())
    assert "was not decided by the threshold of" in said
    assert "is flagged in the table. Pass the detector that it was scored with, score again, or leave out" in said
    assert not (tmp_path / "report.html").exists()


def test_images_in_parquet_are_found_by_row_number(tmp_path: Path) -> None:
    arrow, parquet = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
    encoded = []
    for number, image in enumerate(numbered_images(3)):
        Image.fromarray(image).save(tmp_path / f"{number}.png")
        encoded.append((tmp_path / f"{number}.png").read_bytes())
    parquet.write_table(arrow.table({"image": encoded}), tmp_path / "new.parquet")
    scores = tmp_path / "scores.csv"
    scores.write_text("id,regret\n0,0.5\n2,0.1\n", encoding="utf-8")
    _, page = paged(scores, "--images", tmp_path / "new.parquet", out=tmp_path / "report.html")
    assert page.index("0 of new.parquet") < page.index("2 of new.parquet")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("id,regret\n", "has no rows"),
        ("", "has no column 'id'"),
        ("id,score\na,1\n", "has no column 'regret', only id, score"),
        ("id,regret\na,1\nb\n", "has rows of different lengths"),
        ("id,regret\na,high\n", "is no table of scores"),
        ("id,regret\na,nan\n", "has a regret of nan"),
    ],
)
def test_invalid_table_prints_an_error(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "scores.csv"
    path.write_text(content, encoding="utf-8")
    done = call(path, "--out", tmp_path / "report.html")
    assert done.exit_code == 1
    assert message in done.stderr
    assert not (tmp_path / "report.html").exists()


def test_wrong_arguments_print_an_error(tmp_path: Path, folder: Path) -> None:
    scores = tmp_path / "scores.csv"
    with scores.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file).writerows([["id", "regret"], ["elsewhere.png", 0.1]])
    (tmp_path / "scores.txt").write_text("", encoding="utf-8")
    (tmp_path / "empty").mkdir()
    mistakes: dict[str, tuple[object, ...]] = {
        "no id in": (scores, "--images", folder),
        "is no table of scores": (tmp_path / "scores.txt",),
        "there are no results in": (tmp_path / "empty",),
        "go with a folder of results": (scores, "--model", "resnet-34"),
        "go with a table of scores": (tmp_path / "empty", "--images", folder),
    }
    for message, words in mistakes.items():
        done = call(*words, "--out", tmp_path / "report.html")
        assert done.exit_code != 0
        assert message in " ".join(done.stderr.replace("│", " ").split())
