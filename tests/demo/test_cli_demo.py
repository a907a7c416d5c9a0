"""The command ``demo``, run as a user runs it, and its numbers against scikit-learn's."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING

import numpy as np
import pytest
import typer
from sklearn.metrics import roc_auc_score, roc_curve
from typer.testing import CliRunner

from pnml import demo as package
from pnml.cli.demo import demo
from pnml.demo import assets, words

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray
    from typer.testing import Result

    from .conftest import Done

app = typer.Typer()
app.command()(demo)


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, [*arguments])


def by_scikit_learn(known: NDArray[np.float64], strange: NDArray[np.float64]) -> list[float]:
    """AUROC, TNR at TPR 95% and detection accuracy; to be kept is positive, so low scores are."""
    truth, scores = np.repeat([1, 0], [len(known), len(strange)]), -np.concatenate([known, strange])
    fpr, tpr, _ = roc_curve(truth, scores, drop_intermediate=False)
    return [
        100 * float(roc_auc_score(truth, scores)),
        100 * float(1 - fpr[tpr >= 0.95].min()),
        100 * float(((tpr + 1 - fpr) / 2).max()),
    ]


def test_the_table_holds_what_scikit_learn_finds(done: Done) -> None:
    lines, outcome = done.said.stdout.splitlines(), done.outcome
    for one in outcome.strange:
        (line,) = [line for line in lines if line.startswith(f"| {one.pictures.name} ")]
        printed = [float(number) for number in re.findall(r"\d+\.\d", line)]
        baseline = by_scikit_learn(outcome.known.baseline, one.baseline)
        pnml = by_scikit_learn(outcome.known.regret, one.regret)
        assert printed == pytest.approx([n for pair in zip(baseline, pnml, strict=True) for n in pair], abs=0.0501)


def test_pnml_is_ahead_on_what_the_network_does_not_know(outcome: package.Outcome) -> None:
    for row in package.compare(outcome):
        assert row.pnml.auroc > row.baseline.auroc, row.name
        assert row.pnml.tnr_at_tpr95 > row.baseline.tnr_at_tpr95, row.name


def test_it_is_readable_in_a_log(done: Done) -> None:
    assert done.said.stdout.isascii()
    *lines, last = done.said.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    assert last == f"Open the report in a browser: {done.folder / 'report.html'}"


def test_the_report_shows_every_set(done: Done) -> None:
    page = (done.folder / "report.html").read_text(encoding="utf-8")
    for one in (done.outcome.known, *done.outcome.strange):
        assert one.pictures.name in page
    assert "vultilion" in page, "photographers are credited"
    assert "http://" not in page.replace("http://www.w3.org/", "")


def test_the_report_is_told_what_was_found(outcome: package.Outcome) -> None:
    report = package.as_report(outcome)
    assert [one.role for one in report.sets] == ["in"] + ["out"] * len(outcome.strange)
    assert report.threshold == outcome.threshold.value
    assert report.spectrum is not None
    assert report.spectrum.shape == (64,)
    assert report.class_names[9] == "truck"
    assert f"{float(outcome.training['test_accuracy']):.2f}" in report.facts["Test accuracy"]


def test_examples_are_those_the_network_is_surest_of(outcome: package.Outcome) -> None:
    text = " ".join(words.examples(outcome).split())
    for one in outcome.strange:
        row = int(np.argmax(one.probability))
        said = re.escape(f"{one.pictures.captions[row]} is called '{outcome.classes[one.prediction[row]]}' with")
        (found,) = re.findall(rf"{said} (?:over )?([\d.]+)%: regret ([\d.e-]+), p-value ([\d.e-]+), (\w+)", text)
        above = outcome.threshold.scores >= one.regret[row] * (1 - 1e-6)
        assert float(found[0]) == pytest.approx(100 * one.probability[row], abs=0.11)
        assert float(found[1]) == pytest.approx(one.regret[row], rel=0.05)
        assert float(found[2]) == pytest.approx((1 + above.sum()) / (1 + len(above)), rel=0.5)
        assert (found[3] == "flagged") == (one.regret[row] > outcome.threshold.value)


def test_the_decision_counts_what_is_flagged(outcome: package.Outcome) -> None:
    text = " ".join(words.decision(outcome).split())
    known = (outcome.known.regret > outcome.threshold.value).mean()
    strange = np.concatenate([one.regret for one in outcome.strange]) > outcome.threshold.value
    assert f"flags {100 * known:.1f}% of the known pictures and {100 * strange.mean():.1f}% of the strange" in text
    assert "9,600 other CIFAR-10 test images" in text


def test_a_damaged_package_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assets, "FOLDER", tmp_path)
    found = run("--out", str(tmp_path))
    assert found.exit_code == 1
    assert "install the package again" in found.stderr
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("module", ["torch", "PIL", "sklearn"])
def test_what_is_missing_is_named(module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    found = run()
    assert found.exit_code == 1
    assert f"pnml demo needs '{module}', which is not installed: pip install 'pnml[torch,sklearn]'" in found.stderr


def test_help_has_an_example_and_needs_no_torch() -> None:
    text = run("--help").output
    assert "Example: pnml demo" in text.replace("`", "")
    subprocess.run([sys.executable, "-c", "import sys, pnml.cli.demo; assert 'torch' not in sys.modules"], check=True)
