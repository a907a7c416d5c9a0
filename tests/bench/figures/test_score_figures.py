"""Compare the figures of scores with explicit computations for every sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pnml import Correlation
from pnml.core.subspace import Subspace
from pnml.metrics import tnr_curve
from pnml_bench.figures import gram_vs_pnml, histograms, spectrum, tpr_tnr
from pnml_bench.figures._comparison import Comparison, Scores

if TYPE_CHECKING:
    from matplotlib.lines import Line2D


@pytest.fixture
def comparison() -> Comparison:
    rng = np.random.default_rng(0)
    alone = Scores(rng.lognormal(-7, 1, 300), rng.lognormal(-5, 1, 200))
    plus_pnml = Scores(alone.ind * rng.lognormal(0, 1, 300), alone.ood * rng.lognormal(1, 1, 200))
    return Comparison("densenet-bc-100", "cifar100", "lsun_crop", "gram", alone, plus_pnml)


def points(line: Line2D) -> np.ndarray[Any, Any]:
    """Return the points of a line, (n, 2)."""
    return np.asarray(line.get_xydata())


def naive_best(scores: Scores) -> float:
    """Return the smallest threshold with the largest mean of TPR and TNR."""

    def accuracy(threshold: float) -> float:
        kept = [score <= threshold for score in scores.ind]
        return float(np.mean(kept) + np.mean([score > threshold for score in scores.ood]))

    candidates = sorted({*scores.ind.tolist(), *scores.ood.tolist()})
    return float(max(candidates, key=accuracy))


def test_count_agrees_with_a_loop_over_samples(comparison: Comparison) -> None:
    at, at_pnml = naive_best(comparison.alone), naive_best(comparison.plus_pnml)
    ind = list(zip(comparison.alone.ind > at, comparison.plus_pnml.ind > at_pnml, strict=True))
    ood = list(zip(comparison.alone.ood > at, comparison.plus_pnml.ood > at_pnml, strict=True))
    counts = gram_vs_pnml.count(comparison.alone, comparison.plus_pnml)
    assert counts == {
        "samples": {"ind": 300, "ood": 200},
        "thresholds": {"alone": at, "plus_pnml": at_pnml},
        "ind_refused": {"alone": sum(a for a, _ in ind), "plus_pnml": sum(p for _, p in ind)},
        "ind_refused_by_both": ind.count((True, True)),
        "ood_caught_only_by": {"alone": ood.count((True, False)), "plus_pnml": ood.count((False, True))},
        "ood_missed_by_both": ood.count((False, False)),
    }
    assert min(counts["ood_caught_only_by"].values()) > 0
    own = gram_vs_pnml.count(comparison.alone, comparison.plus_pnml, {"alone": 1e9, "plus_pnml": 0.0})
    assert own["ind_refused"] == {"alone": 0, "plus_pnml": 300}
    text = " ".join(gram_vs_pnml.describe(counts))
    assert f"flags {ood.count((False, True))} that Gram misses" in text
    assert f"Gram flags {sum(a for a, _ in ind)} and" in text


def test_gram_vs_pnml_panels_contain_every_sample_and_label_the_quadrants(comparison: Comparison) -> None:
    counts = gram_vs_pnml.count(comparison.alone, comparison.plus_pnml)
    left, right = gram_vs_pnml.draw(comparison).axes[:2]
    for axes, total in ((left, 300), (right, 200)):
        assert np.ma.sum(np.ma.asarray(axes.collections[0].get_array())) == total
        assert sum(int(text.get_text().split(": ")[1]) for text in axes.texts) == total
        lines = [points(line) for line in axes.lines]
        paper = {"alone": 0.0017, "plus_pnml": 0.0024 * np.log(100)}
        for (vertical, horizontal), at in zip((lines[:2], lines[2:]), (counts["thresholds"], paper), strict=True):
            assert vertical[:, 0] == pytest.approx(at["alone"])
            assert horizontal[:, 1] == pytest.approx(at["plus_pnml"])
    corners: dict[str, int] = {}
    for text in right.texts:
        who, number = text.get_text().removeprefix("flagged by\n").split(": ")
        corners[who] = int(number)
    assert corners["Gram only"] == counts["ood_caught_only_by"]["alone"]
    assert corners["Gram+pNML only"] == counts["ood_caught_only_by"]["plus_pnml"]
    assert corners["neither"] == counts["ood_missed_by_both"]
    upper_left = next(text for text in right.texts if "Gram+pNML only" in text.get_text())
    x, y = upper_left.get_position()
    assert x < 0.5 < y


def test_tpr_tnr_draws_both_curves_for_each_set(comparison: Comparison) -> None:
    figure = tpr_tnr.draw([comparison] * 4)
    assert [axes.get_title() for axes in figure.axes] == ["DenseNet-BC-100: CIFAR-100 → LSUN (C)"] * 4
    for axes in figure.axes:
        mark, *curves = axes.lines
        assert (points(mark)[:, 0] == 95).all()
        for line, dot, scores in zip(curves[::2], curves[1::2], (comparison.alone, comparison.plus_pnml), strict=True):
            np.testing.assert_array_equal(points(line), np.stack(tnr_curve(*scores)[1:], axis=1))
            threshold = np.sort(scores.ind)[284]  # the 285th of 300 keeps 95%
            expected = 100 * np.mean(scores.ood > threshold)
            assert points(dot)[0] == pytest.approx([95, expected])
            assert f"{expected:.1f} at TPR 95%" in str(line.get_label())


def test_binned_percentages_count_every_sample_once_even_outside_of_the_bins() -> None:
    scores = Scores(np.array([0.0, 1e-3, 2e-3, 0.9]), np.array([0.05, 0.5, np.inf]))
    edges, ind, ood = histograms.binned_percentages(scores, bins=3)
    np.testing.assert_allclose(edges, np.geomspace(1e-3, 0.9, 4))
    for heights, part in ((ind, scores.ind), (ood, scores.ood)):
        naive = [0.0] * 3
        for score in part:
            naive[sum(bool(score > edge) for edge in edges[1:-1])] += 100 / len(part)
        np.testing.assert_allclose(heights, naive)


def test_spectrum_equals_squared_singular_values_divided_by_rows() -> None:
    rng = np.random.default_rng(0)
    sets: dict[str, np.ndarray[Any, Any]] = {"cifar10": rng.normal(size=(50, 6)), "svhn": rng.normal(size=(4, 6))}
    subspaces = {name: Subspace.fit(Correlation().update(x)) for name, x in sets.items()}
    of_sets = {name: subspace.spectrum[: subspace.rank] for name, subspace in subspaces.items()}
    figure = spectrum.draw({"resnet-34": of_sets, "densenet-bc-100": of_sets})
    axes, second = figure.axes
    assert (axes.get_title()[-9:], second.get_title()[-15:]) == ("ResNet-34", "DenseNet-BC-100")
    assert axes.get_yscale() == "log"
    for line, rows in zip(axes.lines, sets.values(), strict=True):
        expected = np.linalg.svd(rows, compute_uv=False) ** 2 / len(rows)
        np.testing.assert_allclose(points(line)[:, 1], expected, rtol=1e-9)  # no more than the rank
    assert [line.get_label() for line in axes.lines] == ["CIFAR-10", "SVHN"]
