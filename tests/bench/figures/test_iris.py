"""Test that the Iris figure shows what the paper describes."""

from __future__ import annotations

from itertools import combinations, product
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest
from matplotlib.colors import to_hex
from scipy.optimize import linprog, minimize_scalar
from scipy.spatial.distance import cdist
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from pnml import SingleLayer
from pnml.bench.figures.iris import MARGIN, SMOOTHING, Landscape, Split, SplitName, draw, evaluate, load_split
from pnml.cli.figures import figures_app

if TYPE_CHECKING:
    from pathlib import Path

    from matplotlib.figure import Figure

Matrix = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def separable() -> tuple[Split, Landscape]:
    return load_split("separable"), evaluate(load_split("separable"))


@pytest.fixture(scope="module")
def inseparable() -> tuple[Split, Landscape]:
    return load_split("inseparable"), evaluate(load_split("inseparable"))


@pytest.fixture(scope="module")
def figure() -> Figure:
    return draw()


def corners(landscape: Landscape, values: Matrix) -> dict[str, Matrix]:
    """Return the four corners of a map, each a sixth of the side long."""
    n = len(landscape.feature_1) // 6
    low, high = slice(None, n), slice(-n, None)
    return {
        "upper left": values[high, low],
        "upper right": values[high, high],
        "lower left": values[low, low],
        "lower right": values[low, high],
    }


def distance_to_training(split: Split, landscape: Landscape) -> Matrix:
    """Return the distance of every grid point to the nearest training flower, in standard deviations."""
    grid = np.stack(np.meshgrid(landscape.feature_1, landscape.feature_2), axis=-1).reshape(-1, 2)
    nearest = cdist(split.standardise(grid), split.standardise(split.rows)).min(axis=1)
    return np.asarray(nearest.reshape(landscape.regret.shape))


def is_linearly_separable(split: Split) -> bool:
    """Solve a linear program for w, b with the correct sign of w·x + b on every flower."""
    signs = 2 * split.labels[:, None] - 1
    rows = np.column_stack([split.standardise(split.rows), np.ones(len(split.rows))])
    return bool(linprog(np.zeros(3), A_ub=-signs * rows, b_ub=-np.ones(len(rows)), bounds=(None, None)).success)


def logistic(rows: Matrix, labels: Matrix, points: Matrix) -> Matrix:
    """Return the maximum-likelihood probability of label 1, with the boundary through the mean of the rows."""
    centre, scale = rows.mean(axis=0), rows.std(axis=0)
    model = LogisticRegression(C=1e6, fit_intercept=False).fit((rows - centre) / scale, labels)
    return np.asarray(model.predict_proba((points - centre) / scale)[:, 1])


def test_one_split_is_separable_and_the_other_is_not(
    separable: tuple[Split, Landscape], inseparable: tuple[Split, Landscape]
) -> None:
    assert is_linearly_separable(separable[0])
    assert not is_linearly_separable(inseparable[0])


def test_split_contains_the_named_species_and_features(inseparable: tuple[Split, Landscape]) -> None:
    flowers, split = load_iris(), inseparable[0]
    columns = [flowers.feature_names.index(name) for name in split.features]
    assert split.classes == ("versicolor", "setosa or virginica")
    for label, species in enumerate((["versicolor"], ["setosa", "virginica"])):
        expected = flowers.data[np.isin(flowers.target_names[flowers.target], species)][:, columns]
        np.testing.assert_array_equal(split.rows[split.labels == label], expected)


def test_load_split_raises_for_unknown_name() -> None:
    with pytest.raises(ValueError, match="unknown split 'random': expected one of 'separable', 'inseparable'"):
        load_split(cast("SplitName", "random"))


@pytest.mark.parametrize("name", ["separable", "inseparable"])
def test_landscape_equals_the_regret_formula_at_each_grid_point(name: SplitName) -> None:
    split = load_split(name)
    landscape = evaluate(split, resolution=5)
    x = split.standardise(split.rows)
    targets = np.log(np.where(np.eye(2)[split.labels] == 1, 1 - SMOOTHING, SMOOTHING))
    theta = np.linalg.solve(x.T @ x, x.T @ targets)
    for row, column in product(range(5), range(5)):
        point = split.standardise(np.array([landscape.feature_1[column], landscape.feature_2[row]]))
        p = np.exp(point @ theta) / np.exp(point @ theta).sum()
        h = point @ np.linalg.inv(x.T @ x) @ point
        genies = p / (p + p ** (h / (1 + h)) * (1 - p))
        assert landscape.probability[row, column] == pytest.approx(p[1], rel=1e-9)
        assert landscape.regret[row, column] == pytest.approx(np.log(genies.sum()), rel=1e-6, abs=1e-12)


def test_grid_has_a_margin_around_the_training_data(separable: tuple[Split, Landscape]) -> None:
    split, landscape = separable
    for feature, axis in enumerate((landscape.feature_1, landscape.feature_2)):
        span = np.ptp(split.rows[:, feature])
        assert split.rows[:, feature].min() - axis[0] == pytest.approx(MARGIN * span)
        assert axis[-1] - split.rows[:, feature].max() == pytest.approx(MARGIN * span)


def test_separable_model_predicts_c1_at_top_left_and_c2_at_bottom_right(
    separable: tuple[Split, Landscape],
) -> None:
    probability = corners(separable[1], separable[1].probability)
    assert probability["upper left"].max() < 0.05
    assert probability["lower right"].min() > 0.95


def test_separable_regret_is_low_far_from_the_boundary_and_high_along_it(separable: tuple[Split, Landscape]) -> None:
    split, landscape = separable
    regret, distance = corners(landscape, landscape.regret), corners(landscape, distance_to_training(split, landscape))
    for corner in ("upper left", "lower right"):
        assert distance[corner].min() > 0.5  # no training samples there
    low = max(regret[corner].max() for corner in ("upper left", "lower right"))
    high = min(regret[corner].min() for corner in ("upper right", "lower left"))
    assert high > 4 * low
    assert landscape.regret.max() == landscape.regret[-1, -1]


def test_inseparable_probability_is_below_0_7(inseparable: tuple[Split, Landscape]) -> None:
    probability = inseparable[1].probability
    assert probability.max() < 0.7
    assert (1 - probability).max() < 0.7


def test_inseparable_probability_agrees_with_logistic_regression(inseparable: tuple[Split, Landscape]) -> None:
    split, landscape = inseparable
    grid = np.stack(np.meshgrid(landscape.feature_1, landscape.feature_2), axis=-1).reshape(-1, 2)
    expected = logistic(split.rows, split.labels, grid).reshape(landscape.probability.shape)
    assert np.abs(expected - landscape.probability).max() < 0.01


def test_smoothing_maximises_the_likelihood_of_the_inseparable_split(inseparable: tuple[Split, Landscape]) -> None:
    split, _ = inseparable
    x = split.standardise(split.rows)

    def loss(smoothing: float) -> float:
        log_p = SingleLayer(smoothing).fit(x, split.labels).predict_log_proba(x)
        return -float(log_p[np.arange(len(x)), split.labels].mean())

    best = minimize_scalar(loss, bounds=(0.01, 0.49), method="bounded").x
    assert round(best, 2) == SMOOTHING


def test_versicolor_against_virginica_is_confident_in_some_corner() -> None:
    flowers = load_iris()
    kept = flowers.target > 0
    for columns in combinations(range(4), 2):
        rows, labels = flowers.data[kept][:, columns], flowers.target[kept] - 1
        edge = MARGIN * np.ptp(rows, axis=0)
        box = np.array(list(product(*zip(rows.min(axis=0) - edge, rows.max(axis=0) + edge, strict=True))))
        assert logistic(rows, labels, box).max() > 0.95


def test_inseparable_regret_is_small_near_training_data_and_large_away_from_it(
    inseparable: tuple[Split, Landscape],
) -> None:
    split, landscape = inseparable
    distance = distance_to_training(split, landscape)
    assert landscape.regret[distance > 1].min() > landscape.regret[distance < 0.25].mean()
    assert landscape.regret[distance > 1].mean() > 5 * landscape.regret[distance < 0.25].mean()
    for corner in ("upper left", "lower right"):  # corners without training data
        assert corners(landscape, distance)[corner].min() > 0.5
        assert corners(landscape, landscape.regret)[corner].min() > landscape.regret[distance < 0.25].max()


def test_inseparable_regret_is_small_in_the_mixed_area(inseparable: tuple[Split, Landscape]) -> None:
    split, landscape = inseparable
    x = split.standardise(split.rows)
    other_class = split.labels[:, None] != split.labels
    mixed = np.where(other_class, cdist(x, x), np.inf).min(axis=1) < 0.25
    assert mixed.sum() >= 10
    regret = SingleLayer(SMOOTHING).fit(x, split.labels).regret(x)
    assert regret[mixed].max() < 0.1 * landscape.regret.max()


def test_figure_has_four_panels_with_colour_bars_and_red_markers(figure: Figure) -> None:
    panels = [axes for row in figure.subfigs for axes in row.axes[:2]]
    assert [axes.get_title()[:3] for axes in panels] == ["(a)", "(b)", "(c)", "(d)"]
    assert [axes.get_ylabel() for row in figure.subfigs for axes in row.axes[2:]] == [
        "probability of $c_2$",
        r"regret $\Gamma$ (nats)",
    ] * 2
    splits = [load_split("separable")] * 2 + [load_split("inseparable")] * 2
    for axes, split in zip(panels, splits, strict=True):
        assert axes.get_xlabel() == f"feature 1: {split.features[0]}"
        assert axes.get_ylabel() == f"feature 2: {split.features[1]}"
        red = {line.get_marker(): line for line in axes.lines if to_hex(line.get_color()) == "#e8000b"}
        assert set(red) == {"o", "x"}
        np.testing.assert_array_equal(red["o"].get_xydata(), split.rows[split.labels == 0])
        np.testing.assert_array_equal(red["x"].get_xydata(), split.rows[split.labels == 1])


def test_colour_scales_cover_the_values(
    separable: tuple[Split, Landscape], inseparable: tuple[Split, Landscape]
) -> None:
    assert max(separable[1].regret.max(), inseparable[1].regret.max()) < 0.1


def test_command_writes_png_and_svg(tmp_path: Path) -> None:
    result = CliRunner().invoke(figures_app, ["iris", "--out", str(tmp_path / "new")])
    assert result.exit_code == 0, result.output
    png, svg = tmp_path / "new" / "iris.png", tmp_path / "new" / "iris.svg"
    assert result.output.splitlines() == [f"wrote {png}", f"wrote {svg}"]
    assert png.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    assert b"<svg" in svg.read_bytes()
    assert sorted(tmp_path.joinpath("new").iterdir()) == [png, svg]
