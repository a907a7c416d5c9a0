"""Test the simulated regret curves, and the files that figures are saved to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib.image import imread
from typer.testing import CliRunner

from pnml_bench.cli.figures import figures_app
from pnml_bench.figures import new_figure, save
from pnml_bench.figures.simulation import P1, curves, draw

if TYPE_CHECKING:
    from pathlib import Path


def test_curves_equal_the_regret_divided_by_log_two() -> None:
    xtg, heights = curves(resolution=11)
    for p, curve in zip(P1, heights, strict=True):
        for t, height in zip(xtg, curve, strict=True):
            genies = [q / (q + q**t * (1 - q)) for q in (p, 1 - p)]
            assert height == pytest.approx(np.log(sum(genies)) / np.log(2), rel=1e-9, abs=1e-12)


def test_curves_cover_xtg_from_zero_to_one() -> None:
    xtg, heights = curves()
    assert (xtg[0], xtg[-1]) == (0, 1)
    assert heights.shape == (3, len(xtg))
    assert (heights[:, 0] == 0).all()
    limits = [np.log(1 / (2 - p) + 1 / (1 + p)) / np.log(2) for p in P1]
    np.testing.assert_allclose(heights[:, -1], limits, rtol=1e-12)


def test_curves_increase_and_stay_below_one() -> None:
    _, heights = curves()
    assert (np.diff(heights, axis=1) > 0).all()
    assert heights.max() < 1


def test_curve_of_the_most_confident_model_is_the_steepest() -> None:
    xtg, heights = curves()
    steepest = np.gradient(heights, xtg, axis=1).max(axis=1)
    assert steepest[2] > 2 * max(steepest[0], steepest[1])


def test_most_confident_model_has_the_smallest_regret_first_and_the_largest_last() -> None:
    xtg, heights = curves()
    assert (heights[:, (xtg > 0) & (xtg < 0.7)].argmin(axis=0) == 2).all()
    assert list(heights[:, -1].argsort()) == [0, 1, 2]


def test_draw_plots_and_labels_the_curves() -> None:
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


def test_save_is_reproducible_and_has_200_dpi(tmp_path: Path) -> None:
    first, second = (save(draw(), tmp_path / folder, "same") for folder in ("one", "two"))
    assert imread(first[0]).shape[:2] == (640, 960)
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()


def test_failed_save_leaves_no_files(tmp_path: Path) -> None:
    figure = new_figure(1, 1)
    figure.text(0, 0, r"$\nosuchsymbol$")
    with pytest.raises(ValueError, match="nosuchsymbol"):
        save(figure, tmp_path, "broken")
    assert list(tmp_path.iterdir()) == []
