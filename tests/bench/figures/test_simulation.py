"""The simulated regret curves, and the files every figure is written to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from pnml.bench.figures import blank, save
from pnml.bench.figures.simulation import P1, curves, draw
from pnml.cli.figures import figures_app

if TYPE_CHECKING:
    from pathlib import Path


def test_curves_are_the_theorem_over_log_two() -> None:
    xtg, heights = curves(resolution=11)
    for p, curve in zip(P1, heights, strict=True):
        for t, height in zip(xtg, curve, strict=True):
            genies = [q / (q + q**t * (1 - q)) for q in (p, 1 - p)]
            assert height == pytest.approx(np.log(sum(genies)) / np.log(2), rel=1e-9, abs=1e-12)


def test_curves_run_over_all_that_xtg_can_reach() -> None:
    xtg, heights = curves()
    assert (xtg[0], xtg[-1]) == (0, 1)
    assert heights.shape == (3, len(xtg))
    assert (heights[:, 0] == 0).all()
    limits = [np.log(1 / (2 - p) + 1 / (1 + p)) / np.log(2) for p in P1]
    np.testing.assert_allclose(heights[:, -1], limits, rtol=1e-12)


def test_curves_rise_and_stay_within_the_bound() -> None:
    _, heights = curves()
    assert (np.diff(heights, axis=1) > 0).all()
    assert heights.max() < 1


def test_certain_model_answers_a_change_of_xtg_the_most_strongly() -> None:
    xtg, heights = curves()
    steepest = np.gradient(heights, xtg, axis=1).max(axis=1)
    assert steepest[2] > 2 * max(steepest[0], steepest[1])


def test_certain_model_starts_with_the_least_regret_and_ends_with_the_most() -> None:
    xtg, heights = curves()
    assert (heights[:, (xtg > 0) & (xtg < 0.7)].argmin(axis=0) == 2).all()
    assert list(heights[:, -1].argsort()) == [0, 1, 2]


def test_figure_draws_the_curves_up_to_one_and_names_them() -> None:
    (axes,) = draw().axes
    assert axes.get_xlim() == (0, 1)
    assert [text.get_text() for text in axes.texts] == [f"$p_1 = {p}$" for p in P1]
    for line, curve in zip(axes.lines, curves()[1], strict=True):
        np.testing.assert_array_equal(line.get_ydata(), curve)


def test_command_writes_png_and_svg(tmp_path: Path) -> None:
    result = CliRunner().invoke(figures_app, ["simulation", "--out", str(tmp_path)])
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["simulation.png", "simulation.svg"]
    assert str(tmp_path / "simulation.png") in result.output


@pytest.mark.parametrize("command", ["iris", "simulation"])
def test_help_shows_an_example(command: str) -> None:
    result = CliRunner().invoke(figures_app, [command, "--help"])
    assert result.exit_code == 0
    assert f"pnml figures {command} --out figures" in result.output


def test_saving_is_reproducible_at_two_hundred_dots_an_inch(tmp_path: Path) -> None:
    first, second = (save(draw(), tmp_path / folder, "same") for folder in ("one", "two"))
    assert imread(first[0]).shape[:2] == (640, 960)
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()


def test_failed_save_leaves_nothing_behind(tmp_path: Path) -> None:
    figure = blank(1, 1)
    figure.text(0, 0, r"$\nosuchsymbol$")
    with pytest.raises(ValueError, match="nosuchsymbol"):
        save(figure, tmp_path, "broken")
    assert list(tmp_path.iterdir()) == []
