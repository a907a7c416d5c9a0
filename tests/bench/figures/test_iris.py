"""Test that the Iris figure shows what the paper describes, by its recipe and by the layer of its theorem."""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Any, get_args

import numpy as np
import pytest
from matplotlib.colors import to_hex
from scipy.optimize import linprog, minimize_scalar
from typer.testing import CliRunner

from pnml import SingleLayer
from pnml_bench.cli.figures import figures_app
from pnml_bench.figures.iris import SMOOTHING, Landscape, Learner, Split, SplitName, draw, evaluate, load_split

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

LEARNERS: tuple[Learner, ...] = get_args(Learner)
NAMES: tuple[SplitName, ...] = get_args(SplitName)


@pytest.fixture(scope="module")
def landscapes() -> dict[tuple[SplitName, Learner], tuple[Split, Landscape]]:
    splits = {name: load_split(name) for name in NAMES}
    return {(name, one): (splits[name], evaluate(splits[name], one)) for name in NAMES for one in LEARNERS}


@pytest.fixture(scope="module")
def figure() -> Figure:
    return draw()


def is_linearly_separable(split: Split) -> bool:
    """Solve a linear program for w, b with the correct sign of w·x + b on every flower."""
    signs = 2 * split.labels[:, None] - 1
    rows = np.column_stack([split.rows, np.ones(len(split.rows))])
    return bool(linprog(np.zeros(3), A_ub=-signs * rows, b_ub=-np.ones(len(rows)), bounds=(None, None)).success)


def test_one_split_is_separable_and_the_other_is_not() -> None:
    assert is_linearly_separable(load_split("separable"))
    assert not is_linearly_separable(load_split("inseparable"))


@pytest.mark.parametrize("name", NAMES)
def test_the_fitted_landscape_equals_the_regret_formula_at_each_grid_point(name: SplitName) -> None:
    split = load_split(name)
    landscape = evaluate(split, "fitted", resolution=5)
    x = np.column_stack([split.rows, np.ones(len(split.rows))])
    targets = np.log(np.where(np.eye(2)[split.labels] == 1, 1 - SMOOTHING, SMOOTHING))
    theta = np.linalg.solve(x.T @ x, x.T @ targets)
    for row, column in product(range(5), range(5)):
        point = np.array([landscape.feature_1[column], landscape.feature_2[row], 1.0])
        p = np.exp(point @ theta) / np.exp(point @ theta).sum()
        h = point @ np.linalg.inv(x.T @ x) @ point
        genies = p / (p + p ** (h / (1 + h)) * (1 - p))
        assert landscape.probability[row, column] == pytest.approx(p[1], rel=1e-7)
        assert landscape.regret[row, column] == pytest.approx(np.log(genies.sum()), rel=1e-6, abs=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_the_published_regret_is_of_points_of_norm_1_among_rows_that_are_not(name: SplitName) -> None:
    split = load_split(name)
    landscape = evaluate(split, "as published", resolution=4)
    x = np.column_stack([split.rows, np.ones(len(split.rows))])
    for row, column in product(range(4), range(4)):
        point = np.array([landscape.feature_1[column], landscape.feature_2[row], 1.0])
        point /= np.linalg.norm(point)
        h, p = point @ np.linalg.inv(x.T @ x) @ point, landscape.probability[row, column]
        genies = sum(one / (one + one ** (h / (1 + h)) * (1 - one)) for one in (p, 1 - p))
        assert landscape.regret[row, column] == pytest.approx(np.log(genies), rel=1e-5, abs=1e-12)


def test_the_published_recipe_gives_a_probability_below_0_7_as_its_network_tells_nothing_apart(landscapes: Any) -> None:
    split, landscape = landscapes["inseparable", "as published"]
    assert landscape.probability.max() < 0.7
    assert landscape.probability.min() < 0.3  # so that of c₁ is above
    at = [
        np.abs(axis[:, None] - split.rows[:, i]).argmin(axis=0)
        for i, axis in enumerate((landscape.feature_1, landscape.feature_2))
    ]
    right = (landscape.probability[at[1], at[0]] > 0.5) == split.labels
    assert right.mean() == pytest.approx(0.5, abs=0.1)
    assert landscapes["inseparable", "fitted"][1].probability.max() > 0.95


def test_smoothing_maximises_the_likelihood_of_the_inseparable_split() -> None:
    split = load_split("inseparable")
    x = np.column_stack([split.rows, np.ones(len(split.rows))])

    def loss(smoothing: float) -> float:
        log_p = SingleLayer(smoothing).fit(x, split.labels).predict_log_proba(x)
        return -float(log_p[np.arange(len(x)), split.labels].mean())

    assert round(minimize_scalar(loss, bounds=(0.01, 0.49), method="bounded").x, 2) == SMOOTHING


def test_figure_has_eight_panels_with_colour_bars_and_red_markers(figure: Figure) -> None:
    panels = [axes for row in figure.subfigs for axes in row.axes[:4]]
    assert [axes.get_title()[:3] for axes in panels] == [f"({letter})" for letter in "abcdefgh"]
    splits = [load_split("separable")] * 4 + [load_split("inseparable")] * 4
    for axes, split in zip(panels, splits, strict=True):
        assert axes.get_xlabel() == f"feature 1: {split.features[0]}"
        red = {line.get_marker(): line for line in axes.lines if to_hex(line.get_color()) == "#e8000b"}
        assert set(red) == {"o", "x"}
        np.testing.assert_array_equal(red["o"].get_xydata(), split.rows[split.labels == 0])
        np.testing.assert_array_equal(red["x"].get_xydata(), split.rows[split.labels == 1])


def test_command_writes_png_and_svg(tmp_path: Path) -> None:
    result = CliRunner().invoke(figures_app, ["iris", "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    png, svg = tmp_path / "new" / "iris.png", tmp_path / "new" / "iris.svg"
    assert result.output.splitlines() == [f"wrote {png}", f"wrote {svg}"]
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert b"<svg" in svg.read_bytes()
    assert sorted(tmp_path.joinpath("new").iterdir()) == [png, svg]
