"""All blocks have a say: embedding, layers, input, lengths; shares sum to the leverage, and nothing odd breaks it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from oracles import about_class_means
from pnml import Detector
from pnml.core.geometry import Geometry
from pnml.core.layout import Layout, some_columns
from pnml.core.profile import LEVEL

from .strategies import Matrix, modest, seeds

CLASSES, WIDTHS = 4, (10, 6, 8, 3)
WEIGHT = np.random.default_rng(1).normal(size=(CLASSES, WIDTHS[0]))


def network(seed: int, n: int) -> list[Matrix]:
    """Embeddings in clusters, one for each class, and features of three earlier layers that know less of classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=n)
    centres = np.random.default_rng(1000)
    return [
        2 / (1 + depth) * centres.normal(size=(CLASSES, width))[labels]
        + 1
        + 0.5 * rng.normal(size=(n, width)) * np.geomspace(1, 0.1, width)
        for depth, width in enumerate(WIDTHS)
    ]


def fitted(rows: list[Matrix], **options: Any) -> Detector:
    return Detector(WEIGHT, **options).fit(rows[0], features=rows[1:])


def ask(detector: Detector, rows: list[Matrix]) -> Any:
    return detector(rows[0], features=rows[1:])


@modest
@given(seeds, st.sampled_from([40, 150, 1000]), st.booleans(), st.booleans())
def test_every_field_is_what_its_definition_gives(seed: int, n: int, input_layer: bool, labelled: bool) -> None:  # noqa: FBT001
    train, rng = network(seed, n), np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=n) if labelled else None
    detector = Detector(WEIGHT, input_layer=input_layer).fit(train[0], features=train[1:], labels=labels)
    strange = [rng.normal(size=(30, width)) for width in WIDTHS]
    x = [np.vstack(pair) for pair in zip(network(seed + 1, 30), strange, strict=True)]
    expected = about_class_means(WEIGHT, detector.bias, train, x, labels=labels, input_layer=input_layer)
    result = ask(detector, x)
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(result, name), value, rtol=1e-6, atol=1e-9, err_msg=name)


def test_both_leverages_of_the_embedding_come_from_one_product() -> None:
    """Those of explicit inverses, of one factor that whitens the one scatter and makes the other diagonal."""
    rows = network(0, 300)[0]
    detector = fitted([rows])
    embedding = Geometry.fit(detector.correlation).embedding
    x = np.random.default_rng(1).normal(size=(50, WIDTHS[0])) / 3
    for classes, about in ((detector.predict(rows), "class"), (np.zeros(300, dtype=int), "all")):
        units = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        means = [np.vstack([units[classes == c], units.mean(axis=0)]).mean(axis=0) for c in range(classes.max() + 1)]
        spread = units - np.stack(means)[classes]
        y = (x - embedding.mean) @ embedding.whitening
        h = (y * y) @ embedding.background if about == "all" else ((y - embedding.centres[0]) ** 2).sum(axis=1)
        factor = np.linalg.inv(embedding.whitening)  # (W + λI) = factorᵀ factor
        scatter = factor.T @ np.diag(1 / embedding.background if about == "all" else np.ones(WIDTHS[0])) @ factor
        ridge = (scatter - spread.T @ spread).diagonal().mean()
        d = x - means[0]
        exact = np.einsum("ij,jk,ik->i", d, np.linalg.inv(spread.T @ spread + ridge * np.eye(WIDTHS[0])), d)
        np.testing.assert_allclose(h, exact, rtol=1e-8)
        np.testing.assert_allclose(scatter - spread.T @ spread, ridge * np.eye(WIDTHS[0]), atol=1e-9)


def test_shares_sum_to_the_leverage_and_have_names() -> None:
    detector = fitted(network(0, 400))
    assert detector.block_names == ("embedding", "layer0", "layer1", "layer2", "lengths")
    assert detector.watched_names == detector.block_names[1:]
    for rows in (network(1, 50), [10 * layer for layer in network(2, 50)], network(0, 50)):
        result = ask(detector, rows)
        assert result.leverage_by_layer.shape == (50, 5)
        assert (result.leverage_by_layer >= 0).all()
        h = result.leverage_by_layer.sum(axis=1)
        np.testing.assert_allclose(result.xtg, h / (1 + h), rtol=1e-12)


@pytest.mark.parametrize("strange", [0, 1, 2, 3, 4])
def test_what_is_strange_in_one_block_has_its_share_from_there(strange: int) -> None:
    detector, rows = fitted(network(0, 400)), network(1, 100)
    plain, rng = ask(detector, rows).regret, np.random.default_rng(7)
    if strange == 4:  # no direction, but the lengths
        rows[1:] = [layer * rng.choice([0.1, 10.0], size=(100, 1)) for layer in rows[1:]]
    else:
        norms = np.linalg.norm(rows[strange], axis=1, keepdims=True)
        rows[strange] = np.asarray(rng.normal(size=rows[strange].shape))
        rows[strange] = rows[strange] * norms / np.linalg.norm(rows[strange], axis=1, keepdims=True)
    result = ask(detector, rows)
    shares = result.leverage_by_layer / result.leverage_by_layer.sum(axis=1, keepdims=True)
    assert np.median(shares[:, strange]) > 0.5
    assert (result.strangest_layer == strange).mean() > 0.8
    assert (result.regret > plain).mean() > 0.8


def test_layers_are_silent_about_samples_like_the_training_set() -> None:
    fresh = ask(fitted(network(0, 2000)), network(1, 2000)).leverage_by_layer[:, 1:]
    assert (fresh == 0).all(axis=1).mean() == pytest.approx(LEVEL, abs=0.03)


def test_an_input_is_watched_in_its_own_standard_deviations_too() -> None:
    """Whatever the units of its columns: moved by 3 of their deviations all rows are strange there."""
    train, x, units = network(0, 500), network(1, 200), np.geomspace(1e-6, 1e6, WIDTHS[-1])
    for factor in (np.ones(WIDTHS[-1]), units):
        detector = fitted([*train[:-1], train[-1] * factor], input_layer=True)
        moved = ask(detector, [*x[:-1], (x[-1] + 3 * train[-1].std(axis=0)) * factor])
        assert detector.block_names[3:] == ("layer2", "layer2 unscaled", "lengths")
        assert (moved.strangest_layer >= 3).mean() > 0.9
        known = ask(detector, [*x[:-1], x[-1] * factor])
        assert (moved.leverage_by_layer[:, 4] > known.leverage_by_layer[:, 4]).mean() > 0.8
    with pytest.raises(ValueError, match="input_layer=True says that the last of the features is the input"):
        fitted(train[:1], input_layer=True)


def test_wide_blocks_are_cut_to_evenly_spaced_columns() -> None:
    """And their length is that of all columns."""
    rng = np.random.default_rng(0)
    layout, rows = Layout((1024, 2000, 900), input_layer=True), rng.normal(size=(5, 3924))
    embedding, *layers, unscaled, lengths = layout.blocks(rows, *layout.norms(rows))
    assert layout.block_widths == (512, 512, 512, 512, 2)
    whole = np.split(rows, [1024, 3024], axis=1)
    norms = np.stack([np.linalg.norm(part, axis=1) for part in whole], axis=1)
    np.testing.assert_allclose(lengths, np.log(norms[:, 1:]), rtol=1e-12)
    np.testing.assert_allclose(embedding, rows[:, :1024:2] / norms[:, :1], rtol=1e-12)
    for number, (layer, part) in enumerate(zip(layers, whole[1:], strict=True), start=1):
        places = np.arange(512) * part.shape[1] // 512
        np.testing.assert_allclose(layer, part[:, places] / norms[:, number, None], rtol=1e-12)
    np.testing.assert_array_equal(unscaled, part[:, places])
    np.testing.assert_array_equal(some_columns(torch.tensor(rows)), some_columns(rows))


def test_probabilities_of_a_wide_embedding_are_of_all_its_columns() -> None:
    rng = np.random.default_rng(0)
    weight, train, x = rng.normal(size=(3, 600)), rng.normal(size=(300, 600)), rng.normal(size=(20, 600))
    detector = Detector(weight).fit(train)
    other = x.copy()
    unread = np.setdiff1d(np.arange(600), np.arange(512) * 600 // 512)
    other[:, unread] = other[:, unread][:, ::-1]  # no leverage knows of it
    np.testing.assert_allclose(
        Layout((600,)).blocks(other, *Layout((600,)).norms(other))[0],
        Layout((600,)).blocks(x, *Layout((600,)).norms(x))[0],
    )
    assert not np.allclose(detector(other).pnml_probabilities, detector(x).pnml_probabilities, rtol=1e-3)
    given_logits = detector(x, logits=x @ weight.T)
    np.testing.assert_allclose(given_logits.regret, detector(x).regret, rtol=1e-9)


def test_the_embedding_alone_is_always_the_strangest_layer_of_the_paper() -> None:
    rows = network(0, 100)[0]
    result = Detector(WEIGHT, embedding_scale="paper").fit(rows)(10 * rows[:5])
    np.testing.assert_array_equal(result.strangest_layer, np.zeros(5, dtype=np.int64))


def test_a_score_does_not_depend_on_the_rest_of_the_batch() -> None:
    detector, rows = fitted(network(0, 400)), network(1, 30)
    whole = ask(detector, rows).regret
    one_by_one = [ask(detector, [layer[i : i + 1] for layer in rows]).regret[0] for i in range(30)]
    crowded = [np.vstack([layer, 1e3 * np.ones((500, layer.shape[1]))]) for layer in rows]
    np.testing.assert_allclose(one_by_one, whole, rtol=1e-9)
    np.testing.assert_allclose(ask(detector, crowded).regret[:30], whole, rtol=1e-9)


def test_permuting_layers_permutes_shares() -> None:
    train, x = network(0, 300), [np.vstack([a, a[::-1] + 1]) for a in network(1, 50)]
    order = [0, 3, 1, 2]
    one, other = ask(fitted(train), x), ask(fitted([train[i] for i in order]), [x[i] for i in order])
    np.testing.assert_allclose(other.regret, one.regret, rtol=1e-7)
    np.testing.assert_allclose(other.leverage_by_layer, one.leverage_by_layer[:, [*order, 4]], rtol=1e-6, atol=1e-12)


def broken(case: str, rows: list[Matrix]) -> list[Matrix]:
    """Make the rows degenerate in one way."""
    rows = [layer.copy() for layer in rows]
    if case == "constant":
        rows[1][:] = 3.0
    elif case == "zeros":
        rows[2][:] = 0.0
    elif case == "row of zeros":
        rows[3][0] = 0.0
    elif case == "constant embedding":
        rows[0][:] = 1.0
    elif case == "duplicates":
        rows = [np.repeat(layer[: -(-len(layer) // 10)], 10, axis=0)[: len(layer)] for layer in rows]
    elif case == "dead features":
        for layer in rows:
            layer[:, ::2] = 0
    elif case == "one feature repeated":
        rows[1][:] = rows[1][:, :1]
    return rows


CASES = ["ordinary", "constant", "zeros", "row of zeros", "constant embedding", "duplicates", "dead features"]


@pytest.mark.parametrize("n", [1, 2, 10, 200])
@pytest.mark.parametrize("case", [*CASES, "one feature repeated"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_nothing_degenerate_breaks_a_score(case: str, n: int, dtype: Any) -> None:
    train = [layer.astype(dtype) for layer in broken(case, network(0, n))]
    like_training, fresh = broken(case, network(1, 40)), network(2, 40)
    odd = [np.vstack([np.zeros((1, w)), np.ones((1, w)), np.eye(w)[:1]]) for w in WIDTHS]
    for input_layer in (False, True):
        detector = fitted(train, input_layer=input_layer)
        for rows in (like_training, fresh, odd, [1e6 * layer for layer in fresh], train):
            result = ask(detector, [layer.astype(dtype) for layer in rows])
            for name in ("regret", "xtg", "leverage_by_layer", "pnml_probabilities"):
                assert not np.isnan(getattr(result, name)).any(), name
            assert (result.regret >= 0).all()
            assert (result.regret <= math.log(CLASSES) * (1 + 1e-6)).all()
        left_out = detector.score(train[0], features=train[1:], leave_one_out=True)
        assert ((left_out >= 0) & (left_out <= math.log(CLASSES) * (1 + 1e-6))).all()


@pytest.mark.parametrize("case", ["constant", "zeros"])
def test_leaving_what_never_varied_is_strange_and_staying_is_not(case: str) -> None:
    train, layer = broken(case, network(0, 300)), {"constant": 1, "zeros": 2}[case]
    detector = fitted(train)
    same = ask(detector, broken(case, network(1, 50))).leverage_by_layer[:, layer]
    other = ask(detector, network(1, 50)).leverage_by_layer[:, layer]
    np.testing.assert_array_equal(same, 0)
    assert (other > 1).all()


@pytest.mark.parametrize("n", [2, 3, 60])
def test_classes_without_training_rows_are_scored(n: int) -> None:
    """A head of 30 classes, of which the rows have one, or a few."""
    weight = np.random.default_rng(2).normal(size=(30, WIDTHS[0]))
    train, x = network(0, n), network(1, 200)
    for labels in (np.full(n, 29), np.arange(n) % 2, None):
        detector = Detector(weight).fit(train[0], features=train[1:], labels=labels)
        assert (detector.correlation.class_counts == 0).any()
        result = ask(detector, x)
        assert np.isfinite(result.leverage_by_layer).all()
        assert ((result.regret >= 0) & (result.regret <= math.log(30))).all()


def test_classes_that_are_ruled_out_have_no_part() -> None:
    """The regret of one allowed class is 0, and that of all but one that of a head without it."""
    rows, x = network(0, 300)[0], network(1, 40)[0]
    detector, logits = fitted([rows]), x @ WEIGHT.T
    one, fewer = (np.where(np.isin(np.arange(CLASSES), allowed), logits, -np.inf) for allowed in ([2], [0, 1, 2]))
    for dtype in (np.float32, np.float64):
        result = detector(x.astype(dtype), logits=one.astype(dtype))
        np.testing.assert_allclose(result.regret, 0, atol=1e-7)
        without = detector(x.astype(dtype), logits=fewer.astype(dtype))
        np.testing.assert_allclose(without.pnml_probabilities[:, 3], 0)
        np.testing.assert_allclose(without.pnml_probabilities.sum(axis=1), 1, rtol=1e-5)


def test_few_rows_of_many_features_still_tell_a_stranger() -> None:
    """50 rows of 200 features, of a signal in 10 directions and weak noise in all; strangers have another signal."""
    rng = np.random.default_rng(0)
    weight, signal, other = (rng.normal(size=(10, 200)) / 14 for _ in range(3))
    centre = rng.normal(size=200)

    def rows(n: int, directions: Matrix) -> Matrix:
        return np.asarray(centre + rng.normal(size=(n, 10)) @ directions + 0.05 * rng.normal(size=(n, 200)))

    train, known, strange = rows(50, signal), rows(500, signal), rows(500, other)

    def auroc(scale: Any) -> float:
        detector = Detector(weight, embedding_scale=scale).fit(train)
        return float((detector.score(known)[:, None] < detector.score(strange)[None]).mean())

    assert auroc("auto") > 0.9
    assert auroc("paper") < 0.7


@pytest.mark.parametrize("input_layer", [False, True])
def test_scores_have_gradients_in_every_layer(*, input_layer: bool) -> None:
    """Those of finite differences, for a row that is strange in all layers."""
    rng = np.random.default_rng(2)
    layers = [1 + 0.2 * rng.normal(size=(300, w)) for w in (8, 5)]
    detector = Detector(rng.normal(size=(3, 8)), input_layer=input_layer).fit(layers[0], features=layers[1:])
    x = [torch.tensor(rng.normal(1, 0.4, size=(1, w)), requires_grad=True) for w in (8, 5)]
    detector.score(x[0], features=x[1:]).sum().backward()
    for number, layer in enumerate(x):
        assert layer.grad is not None
        for column in range(layer.shape[1]):
            moved = []
            for step in (1e-6, -1e-6):
                at = [tensor.detach().numpy().copy() for tensor in x]
                at[number][0, column] += step
                moved.append(detector.score(at[0], features=at[1:])[0])
            slope = (moved[0] - moved[1]) / 2e-6
            assert float(layer.grad[0, column]) == pytest.approx(slope, rel=1e-3, abs=1e-6)
