"""The scatter about class means: what it is made of, what it is without a row, and which ridge the rows ask for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pnml.core import scatter as module
from pnml.core.scatter import Scatter, choose_ridge, left_out

from .strategies import Matrix, modest, seeds


def clusters(seed: int, n: int, width: int, classes: int = 4, *, spread: float = 0.3) -> tuple[Matrix, Matrix]:
    """Rows of norm 1 about the mean of their class, and their classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(classes, size=n)
    mixing = rng.normal(size=(width, width)) * np.geomspace(1, 0.05, width)
    rows = 3 * rng.normal(size=(classes, width))[labels] + spread * rng.normal(size=(n, width)) @ mixing
    return rows / np.linalg.norm(rows, axis=1, keepdims=True), labels


def fit(rows: Matrix, labels: Matrix, classes: int) -> Scatter:
    counts = np.bincount(labels, minlength=classes)
    sums = np.stack([rows[labels == c].sum(axis=0) for c in range(classes)])
    return Scatter.fit(rows.T @ rows, counts, sums, rows, labels)


def leverage(found: Scatter, rows: Matrix) -> Matrix:
    """The leverages of rows about their means."""
    return np.asarray(((rows @ found.whitening) ** 2).sum(axis=1))


def directly(rows: Matrix, labels: Matrix, classes: int, prior: int = 1) -> tuple[Matrix, Matrix]:
    """Give the class means, with so many rows at the overall mean, and the scatter of the rows about them."""
    more = np.tile(rows.mean(axis=0), (prior, 1))
    means = np.stack([np.vstack([rows[labels == c], more]).mean(axis=0) for c in range(classes)])
    spread = rows - means[labels]
    return means, np.asarray(spread.T @ spread)


@modest
@given(seeds, st.integers(2, 60), st.integers(1, 8), st.integers(1, 6))
def test_means_and_scatter_are_those_of_the_rows(seed: int, n: int, width: int, classes: int) -> None:
    """Of classes with many rows, one row and none."""
    rows, labels = clusters(seed, n, width, classes)
    means, within = directly(rows, labels, classes)
    found = fit(rows, labels, classes)
    np.testing.assert_allclose(found.means, means, atol=1e-13)
    w = (found.eigenvectors * found.eigenvalues) @ found.eigenvectors.T
    np.testing.assert_allclose(w, within, atol=1e-12 * n)
    np.testing.assert_allclose(found.eigenvectors.T @ found.eigenvectors, np.eye(width), atol=1e-12)
    assert (np.diff(found.eigenvalues) <= 0).all()
    assert (found.eigenvalues >= 0).all()
    assert found.count == n


@modest
@given(seeds, st.integers(30, 80), st.integers(1, 6))
def test_leverages_are_those_of_the_inverse(seed: int, n: int, width: int) -> None:
    rows, labels = clusters(seed, n, width)
    found = fit(rows, labels, 4)
    means, within = directly(rows, labels, 4)
    inverse = np.linalg.inv(within + found.ridge * np.eye(width))
    new = np.random.default_rng(seed).normal(size=(20, width)) - means[0]
    h = np.einsum("ij,jk,ik->i", new, inverse, new)
    np.testing.assert_allclose(leverage(found, new), h, rtol=1e-6)
    np.testing.assert_array_equal(found.whitening, np.triu(found.whitening))


@modest
@given(seeds, st.integers(1, 6))
def test_without_prior_rows_leaving_a_row_out_is_exact(seed: int, width: int) -> None:
    """The leverage about the mean and the scatter of the rows that are left, computed from them alone."""
    rows, labels = clusters(seed, 40, width)
    labels[:8] = np.arange(8) % 4  # no class has a single row
    means, within = directly(rows, labels, 4, prior=0)
    ridge = 0.01
    d = rows - means[labels]
    h = np.einsum("ij,jk,ik->i", d, np.linalg.inv(within + ridge * np.eye(width)), d)
    n = np.bincount(labels)[labels]
    found = left_out(h, n / (n - 1))
    for i in range(len(rows)):
        others, of_others = np.delete(rows, i, axis=0), np.delete(labels, i)
        fewer, smaller = directly(others, of_others, 4, prior=0)
        away = rows[i] - fewer[labels[i]]
        assert found[i] == pytest.approx(away @ np.linalg.solve(smaller + ridge * np.eye(width), away), rel=1e-8)


def refitted(rows: Matrix, labels: Matrix, classes: int, ridge: float, count: int) -> Matrix:
    """Give the leverages of the first rows, each without itself, by computing everything from the others."""
    expected = []
    for i in range(count):
        means, within = directly(np.delete(rows, i, axis=0), np.delete(labels, i), classes)
        away = rows[i] - means[labels[i]]
        expected.append(away @ np.linalg.solve(within + ridge * np.eye(rows.shape[1]), away))
    return np.array(expected)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("n", "tolerance"), [(80, 0.2), (400, 0.02), (2000, 0.002)])
def test_with_a_prior_row_leaving_a_row_out_is_close(seed: int, n: int, tolerance: float) -> None:
    """The prior row has no part in W, and the overall mean moves a little: ever less with more rows."""
    rows, labels = clusters(seed, n, 5)
    found = fit(rows, labels, 4)
    h = leverage(found, (rows - found.means[labels])[:60])
    expected = refitted(rows, labels, 4, found.ridge, 60)
    np.testing.assert_allclose(left_out(h, found.row_shares[labels[:60]]), expected, rtol=tolerance)
    if n == 80:
        full = refitted(rows, labels, 4, found.ridge, 80)
        np.testing.assert_allclose(found.typical, full, rtol=tolerance)


@pytest.mark.parametrize("n", [2, 3, 9, 60])
def test_with_one_class_leaving_a_row_out_is_exact_for_any_number_of_rows(n: int) -> None:
    """The prior row is the mean itself, and moves along."""
    rows, labels = clusters(n, n, 5, 1)
    found = fit(rows, labels, 1)
    np.testing.assert_allclose(found.typical, refitted(rows, labels, 1, found.ridge, n), rtol=1e-6)


def test_a_row_alone_in_its_direction_is_strange_without_itself() -> None:
    rows = np.vstack([np.tile(np.eye(4)[:2], (20, 1)), np.eye(4)[2:3]])
    found = fit(rows, np.zeros(41, dtype=int), 1)
    assert found.typical[-1] > 20 * found.typical[-2]
    assert np.isfinite(found.typical).all()
    assert np.isfinite(left_out(np.array([0.0, 0.999, 1.0, 1.0 + 1e-9]), 1.01)).all()


def likelihood(rows: Matrix, labels: Matrix, ridge: float) -> float:
    """Give the mean log-likelihood of each row under the normal distribution of the others, but for constants.

    Its variance is (W + λI) / N; W of the others lacks a row in N, so the determinant is that of all.
    """
    n, width = rows.shape
    total = 0.0
    for i in range(n):
        means, within = directly(np.delete(rows, i, axis=0), np.delete(labels, i), labels.max() + 1, prior=0)
        away = rows[i] - means[labels[i]]
        total -= n * away @ np.linalg.solve(within + ridge * np.eye(width), away) / 2
    _, within = directly(rows, labels, labels.max() + 1, prior=0)
    return float(total / n - np.linalg.slogdet(within + ridge * np.eye(width))[1] / 2)


def ask_for_ridge(rows: Matrix, labels: Matrix, lowest: float) -> tuple[float, Matrix]:
    """Choose a ridge from rows about plain class means; give the eigenvalues too."""
    means, within = directly(rows, labels, labels.max() + 1, prior=0)
    values, vectors = np.linalg.eigh(within)
    n = np.bincount(labels)[labels]
    squares = ((rows - means[labels]) @ vectors[:, ::-1]) ** 2
    eigenvalues = np.maximum(values[::-1], 0)
    return choose_ridge(eigenvalues, squares, n / (n - 1), len(rows), lowest=lowest), eigenvalues


@pytest.mark.parametrize(("n", "width"), [(15, 25), (40, 10), (25, 25)])
@pytest.mark.parametrize("seed", [0, 1])
def test_the_ridge_is_that_of_the_largest_likelihood_of_rows_left_out(seed: int, n: int, width: int) -> None:
    rows, labels = clusters(seed, n, width, 2)
    lowest = 1e-12 * n
    ridge, eigenvalues = ask_for_ridge(rows, labels, lowest)
    assert lowest <= ridge <= 10 * eigenvalues[0] * (1 + 1e-9)
    found = likelihood(rows, labels, ridge)
    candidates = np.geomspace(lowest, 10 * eigenvalues[0], module._RIDGES)
    best = max(likelihood(rows, labels, other) for other in candidates)
    assert found >= best - 1e-6 * abs(best)


def test_the_ridge_fades_as_rows_become_many() -> None:
    ridges = []
    for n in (30, 100, 1000, 10_000):
        rows, labels = clusters(0, n, 20)
        found = fit(rows, labels, 4)
        ridges.append(found.ridge / n)
    assert ridges[0] > 3 * ridges[2]
    assert (np.diff(ridges) <= 0).all()


@pytest.mark.parametrize("n", [2, 5, 20, 100])
def test_fewer_rows_than_features_do_not_make_every_new_row_endlessly_strange(n: int) -> None:
    """New rows from where the others come from are about as strange as each of those without itself."""
    rng = np.random.default_rng(n)
    rows = 1 + 0.1 * rng.normal(size=(n + 200, 200))
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found = fit(rows[:n], np.zeros(n, dtype=int), 1)
    h = leverage(found, rows[n:] - found.means[0])
    assert 0.5 < np.median(h) / np.median(found.typical) < 2


@pytest.mark.parametrize("n", [2, 5, 20, 100])
@pytest.mark.parametrize("classes", [2, 10])
def test_nor_do_fewer_rows_than_classes(n: int, classes: int) -> None:
    rng = np.random.default_rng(n)
    labels = rng.integers(classes, size=n + 200)
    rows = 1 + 0.1 * rng.normal(size=(n + 200, 100)) + 0.05 * rng.normal(size=(classes, 100))[labels]
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    found = fit(rows[:n], labels[:n], classes)
    h = leverage(found, rows[n:] - found.means[labels[n:]])
    assert 0.1 < np.median(h) / np.median(found.typical) < 3


def test_directions_in_which_training_rows_hardly_vary_are_kept() -> None:
    """1e-10 of the variance of others is what rows are told apart by, if no training row leaves it."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(500, 10)) * np.array([1.0] * 5 + [1e-5] * 5)
    ridge, eigenvalues = ask_for_ridge(rows, np.zeros(500, dtype=int), lowest=1e-14 * 500)
    assert eigenvalues[-1] / eigenvalues[0] == pytest.approx(1e-10, rel=0.5)
    assert ridge < 0.1 * eigenvalues[-1]


@pytest.mark.parametrize("matrix", [np.zeros((3, 3)), np.ones((3, 3)) * 7])
def test_rows_that_are_all_alike_have_a_ridge_and_no_leverage(matrix: Matrix) -> None:
    rows = np.tile(np.sqrt(np.diag(matrix)[None]), (7, 1)) / np.sqrt(7)
    found = Scatter.fit(rows.T @ rows, np.array([7]), rows.sum(axis=0)[None], rows, np.zeros(7, dtype=int))
    assert 0 < found.ridge < 1e-6
    assert (found.typical < 1e-12).all()
    assert (leverage(found, rows - found.means[0]) < 1e-12).all()
    assert (leverage(found, np.eye(3)) > 1e3).all()


@modest
@given(seeds, st.integers(1, 6))
def test_scaled_features_are_measured_in_their_standard_deviations(seed: int, width: int) -> None:
    """So that units of single features change nothing; one that never varied has a small unit of its own size."""
    rng = np.random.default_rng(seed)
    rows, units = rng.normal(size=(60, width)) + rng.normal(size=width), 10.0 ** rng.integers(-6, 7, size=width)

    def scaled(rows: Matrix) -> Scatter:
        classes = np.zeros(60, dtype=int)
        return Scatter.fit(rows.T @ rows, np.array([60]), rows.sum(axis=0)[None], rows, classes, scaled=True)

    plain, other = scaled(rows), scaled(rows * units)
    np.testing.assert_allclose(plain.units, rows.std(axis=0), rtol=1e-9)
    assert other.ridge == pytest.approx(plain.ridge, rel=1e-6)
    new = rng.normal(size=(20, width))
    np.testing.assert_allclose(leverage(other, new * units), leverage(plain, new), rtol=1e-6)
    rows[:, 0] = 7.0
    assert scaled(rows).units[0] == pytest.approx(7 * 2.0**-16)


def test_prior_rows_are_those_that_the_tests_count_with() -> None:
    assert module.PRIOR_ROWS == 1


@modest
@given(seeds, st.sampled_from([1e-3, 10.0, 1e4]))
def test_units_change_no_leverage_as_long_as_rounding_is_far(seed: int, factor: float) -> None:
    rows, labels = clusters(seed, 50, 4)
    plain = ask_for_ridge(rows, labels, 1e-9)[0]
    scaled = ask_for_ridge(rows * factor, labels, 1e-9 * factor**2)[0]
    assert scaled == pytest.approx(plain * factor**2, rel=1e-6)


def test_rows_that_do_not_vary_get_the_ridge_of_rounding() -> None:
    """2⁻¹⁶ of the length of each of 100 rows, which float32 may owe to rounding, squared and summed."""
    rows = np.tile([0.6, 0.8, 0.0], (100, 1))
    assert fit(rows, np.zeros(100, dtype=np.int64), 1).ridge == pytest.approx(100 * 2.0**-32)
