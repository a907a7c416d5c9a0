"""Test ``pnml demo`` and compare its numbers with scikit-learn."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score, roc_curve
from typer.testing import CliRunner

from pnml import demo as package
from pnml.cli import app
from pnml.demo import assets, text

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from typer.testing import Result

    from pnml.report import ScoredSet

    from .conftest import CommandRun


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["demo", *arguments])


def by_scikit_learn(ind: NDArray[np.float64] | None, ood: NDArray[np.float64] | None) -> list[float]:
    """Return AUROC, TNR at TPR 95% and detection accuracy, with in-distribution as the positive class."""
    assert ind is not None
    assert ood is not None
    truth, scores = np.repeat([1, 0], [len(ind), len(ood)]), -np.concatenate([ind, ood])
    fpr, tpr, _ = roc_curve(truth, scores, drop_intermediate=False)
    return [
        100 * float(roc_auc_score(truth, scores)),
        100 * float(1 - fpr[tpr >= 0.95].min()),
        100 * float(((tpr + 1 - fpr) / 2).max()),
    ]


def test_table_agrees_with_scikit_learn(command_run: CommandRun) -> None:
    lines, result = command_run.output.stdout.splitlines(), command_run.result
    for one in result.ood:
        (line,) = [line for line in lines if line.startswith(f"| {one.name} ")]
        printed = [float(number) for number in re.findall(r"\d+\.\d", line)]
        baseline = by_scikit_learn(result.ind.baseline, one.baseline)
        pnml = by_scikit_learn(result.ind.regret, one.regret)
        assert printed == pytest.approx([n for pair in zip(baseline, pnml, strict=True) for n in pair], abs=0.0501)


def test_pnml_is_better_than_baseline_on_every_kind(result: package.DemoResult) -> None:
    for name, pair in package.compare(result).items():
        assert pair.baseline is not None
        assert pair.pnml.auroc > pair.baseline.auroc, name
        assert pair.pnml.tnr_at_tpr95 > pair.baseline.tnr_at_tpr95, name


def test_output_is_ascii_with_at_most_80_columns(command_run: CommandRun) -> None:
    assert command_run.output.stdout.isascii()
    *lines, last = command_run.output.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert last == f"Open the report in a browser: {command_run.folder / 'report.html'}"


def test_report_contains_every_set_and_the_credits(command_run: CommandRun) -> None:
    page = (command_run.folder / "report.html").read_text(encoding="utf-8")
    for one in (command_run.result.ind, *command_run.result.ood):
        assert one.name in page
    assert "vultilion" in page  # a photographer
    assert "http://" not in page.replace("http://www.w3.org/", "")


def test_as_report_contains_the_result(result: package.DemoResult) -> None:
    report = package.as_report(result)
    assert [one.role for one in report.sets] == ["in"] + ["out"] * len(result.ood)
    assert report.calibration is result.threshold
    assert report.spectrum is not None
    assert report.spectrum.shape == (64,)
    assert report.class_names[9] == "truck"
    assert report.layer_names == (*result.detector.layer_names, "lengths")
    assert "4 earlier layers" in report.facts["Detector"]
    assert f"{float(result.training['test_accuracy']):.2f}" in report.facts["Test accuracy"]


def shown(result: package.DemoResult, one: ScoredSet, *, flagged: bool, words: str) -> None:
    """Check what is said about the most confident image that is flagged, or that is not."""
    assert one.probability is not None
    assert one.prediction is not None
    assert one.ids is not None
    assert one.strangest is not None
    rows = np.flatnonzero((one.regret > result.threshold.value) == flagged)
    row = rows[np.argmax(one.probability[rows])]
    start = re.escape(f"{one.ids[row]}: '{result.classes[one.prediction[row]]}' with probability")
    layer = re.escape(f", strangest in {('the embedding', *result.detector.layer_names)[one.strangest[row]]}")
    pattern = rf"{start} (?:over )?([\d.]+)%; regret ([\d.e-]+), p-value ([\d.e-]*\d){layer if flagged else '[.]'}"
    (found,) = re.findall(pattern, words)
    above = result.threshold.scores >= one.regret[row] * (1 - 1e-6)
    assert float(found[0]) == pytest.approx(100 * one.probability[row], abs=0.11)
    assert float(found[1]) == pytest.approx(one.regret[row], rel=0.05)
    assert float(found[2]) == pytest.approx((1 + above.sum()) / (1 + len(above)), rel=0.5)


def test_catches_are_the_most_confident_flagged_images(result: package.DemoResult) -> None:
    words = " ".join(text.catches(result).split())
    for one in result.ood:
        shown(result, one, flagged=True, words=words)


def test_misses_are_counted_and_come_after_the_catches(result: package.DemoResult, command_run: CommandRun) -> None:
    words = " ".join(text.misses(result).split())
    for one in result.ood:
        missed = int((one.regret <= result.threshold.value).sum())
        assert (f"{one.name}: {missed} of {len(one)} are missed." in words) == (missed > 0)
        if missed:
            shown(result, one, flagged=False, words=words)
    printed = command_run.output.stdout
    assert printed.index("Caught.") < printed.index("Missed, and why:")


def test_nothing_missed_is_said_in_one_line(result: package.DemoResult) -> None:
    caught = [one for one in result.ood if (one.regret > result.threshold.value).all()]
    assert text.misses(result._replace(ood=caught)) == "None of them is missed."


def test_decision_contains_the_shares_flagged(result: package.DemoResult) -> None:
    decision = " ".join(text.decision(result).split())
    ind = 100 * (result.ind.regret > result.threshold.value).mean()
    ood = 100 * (np.concatenate([one.regret for one in result.ood]) > result.threshold.value).mean()
    assert f"flags {ind:.1f}% of the in-distribution images and {ood:.1f}% of the out-of-distribution" in decision
    assert "9,600 other CIFAR-10 test images" in decision


def test_damaged_package_prints_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "FOLDER", tmp_path)
    found = run("--out", str(tmp_path))
    assert found.exit_code == 1
    assert "reinstall the package" in found.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module", ["torch", "PIL", "sklearn"])
def test_missing_dependency_prints_how_to_install_it(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    found = run()
    assert found.exit_code == 1
    assert f"pnml demo needs '{module}', which is not installed: pip install 'pnml[torch,sklearn]'" in found.stderr


def test_help_contains_an_example_and_does_not_import_torch() -> None:
    output = run("--help").output
    assert "Example: pnml demo" in output.replace("`", "")
    subprocess.run([sys.executable, "-c", "import sys, pnml.cli.demo; assert 'torch' not in sys.modules"], check=True)


def test_json_has_the_metrics(result: package.DemoResult, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(package, "run", lambda: result)
    done = run("--out", str(tmp_path), "--json")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert found["report"] == str(tmp_path / "report.html")
    assert found["threshold"]["value"] == result.threshold.value
    for one in result.ood:
        auroc, *_ = by_scikit_learn(result.ind.regret, one.regret)
        assert found["sets"][one.name]["pnml"]["auroc"] == pytest.approx(auroc)
