"""Every layer has a say: shares sum to the leverage, and degenerate layers or rows break nothing."""

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
from pnml.core.depth import leverages
from pnml.core.joined import Joined, joined_leverages, unit_blocks
from pnml.core.profile import LEVEL

from .strategies import Matrix, modest, seeds

CLASSES, WIDTHS = 4, (10, 6, 8, 3)


def network(seed: int, n: int) -> list[Matrix]:
    """Embeddings in clusters, one for each class, and features of three earlier layers that know less of classes."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(CLASSES, size=n)
    centres = np.random.default_rng(1000)
    return [
        20 / (1 + depth) * centres.normal(size=(CLASSES, width))[labels] / 10
        + 1
        + 0.5 * rng.normal(size=(n, width)) * np.geomspace(1, 0.1, width)
        for depth, width in enumerate(WIDTHS)
    ]


WEIGHT = np.random.default_rng(1).normal(size=(CLASSES, WIDTHS[0]))


def fitted(seed: int = 0, n: int = 400) -> Detector:
    embeddings, *features = network(seed, n)
    return Detector(WEIGHT).fit(embeddings, features=features)


def ridges(detector: Detector) -> list[float]:
    geometry = detector.geometry
    assert geometry is not None
    first, *others = (scatter.ridge for scatter in geometry.scatters)
    return [first, geometry.background.ridge, *others]


def ask(detector: Detector, rows: list[Matrix]) -> Any:
    return detector(rows[0], features=rows[1:])


@modest
@given(seeds, st.sampled_from([40, 150, 1000]))
def test_every_field_is_what_its_definition_gives(seed: int, n: int) -> None:
    detector, train = fitted(seed, n), network(seed, n)
    rng = np.random.default_rng(seed)
    x = [
        np.vstack([a, b])
        for a, b in zip(network(seed + 1, 30), [rng.normal(size=(30, w)) for w in WIDTHS], strict=True)
    ]
    at = detector.embedding_length, detector.scaled_head[1]
    expected = about_class_means(WEIGHT, detector.bias, train, x, ridges(detector), at=at)
    result = ask(detector, x)
    for name, value in expected.items():  # the rows that set a layer's limit are kept in float32
        np.testing.assert_allclose(getattr(result, name), value, rtol=1e-4, atol=1e-6, err_msg=name)


@modest
@given(seeds)
def test_given_labels_take_the_place_of_predictions(seed: int) -> None:
    train, x = network(seed, 100), network(seed + 1, 20)
    labels = np.random.default_rng(seed).integers(CLASSES, size=100)
    detector = Detector(WEIGHT).fit(train[0], features=train[1:], labels=labels)
    at = detector.embedding_length, detector.scaled_head[1]
    expected = about_class_means(WEIGHT, detector.bias, train, x, ridges(detector), at=at, labels=labels)
    np.testing.assert_allclose(ask(detector, x).regret, expected["regret"], rtol=1e-4)


def test_shares_sum_to_the_leverage() -> None:
    detector = fitted()
    for rows in (network(1, 50), [10 * layer for layer in network(2, 50)], network(0, 50)):
        result = ask(detector, rows)
        assert result.leverage_by_layer.shape == (50, 4)
        assert (result.leverage_by_layer >= 0).all()
        h = result.leverage_by_layer.sum(axis=1)
        np.testing.assert_allclose(result.xtg, h / (1 + h), rtol=1e-12)


@pytest.mark.parametrize("strange", [0, 1, 2, 3])
def test_what_is_strange_in_one_layer_has_its_share_from_there(strange: int) -> None:
    detector, rows = fitted(), network(1, 100)
    plain = ask(detector, rows).regret
    rng = np.random.default_rng(7)
    rows[strange] = np.asarray(rng.normal(size=rows[strange].shape))
    result = ask(detector, rows)
    shares = result.leverage_by_layer / result.leverage_by_layer.sum(axis=1, keepdims=True)
    assert np.median(shares[:, strange]) > 0.5
    assert (result.strangest_layer == strange).mean() > 0.8
    assert (result.regret > plain).mean() > 0.8


def test_layers_are_silent_about_samples_like_the_training_set() -> None:
    fresh = ask(fitted(n=2000), network(1, 2000)).leverage_by_layer[:, 1:]
    assert (fresh == 0).all(axis=1).mean() == pytest.approx(LEVEL, abs=0.03)


def test_embedding_alone_is_always_the_strangest_layer() -> None:
    rows = network(0, 100)[0]
    for scale in ("auto", "paper"):
        result = Detector(WEIGHT, embedding_scale=scale).fit(rows)(10 * rows[:5])
        np.testing.assert_array_equal(result.strangest_layer, np.zeros(5, dtype=np.int64))


def test_a_score_does_not_depend_on_the_rest_of_the_batch() -> None:
    detector, rows = fitted(), network(1, 30)
    whole = ask(detector, rows).regret
    one_by_one = [ask(detector, [layer[i : i + 1] for layer in rows]).regret[0] for i in range(30)]
    crowded = [np.vstack([layer, 1e3 * np.ones((500, layer.shape[1]))]) for layer in rows]
    np.testing.assert_allclose(one_by_one, whole, rtol=1e-9)
    np.testing.assert_allclose(ask(detector, crowded).regret[:30], whole, rtol=1e-9)


def test_permuting_layers_permutes_shares() -> None:
    train, x = network(0, 300), [np.vstack([a, a[::-1] + 1]) for a in network(1, 50)]
    order = [2, 0, 1]
    plain = Detector(WEIGHT).fit(train[0], features=train[1:])
    mixed = Detector(WEIGHT).fit(train[0], features=[train[1 + i] for i in order])
    one, other = plain(x[0], features=x[1:]), mixed(x[0], features=[x[1 + i] for i in order])
    np.testing.assert_allclose(other.regret, one.regret, rtol=1e-7)
    shares = one.leverage_by_layer[:, [0, *(1 + i for i in order)]]
    np.testing.assert_allclose(other.leverage_by_layer, shares, rtol=1e-6, atol=1e-12)


@modest
@given(seeds, st.lists(st.sampled_from([1e-6, 1.0, 1e6]), min_size=4, max_size=4))
def test_units_of_a_layer_do_not_matter(seed: int, factors: list[float]) -> None:
    train, x = network(seed, 200), network(seed + 1, 30)
    plain = Detector(WEIGHT).fit(train[0], features=train[1:])
    train, x = ([layer * factor for layer, factor in zip(rows, factors, strict=True)] for rows in (train, x))
    scaled = Detector(WEIGHT / factors[0]).fit(train[0], features=train[1:])
    before, after = ask(plain, network(seed + 1, 30)), ask(scaled, x)
    np.testing.assert_allclose(after.regret, before.regret, rtol=1e-4)


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


CASES = [
    "ordinary",
    "constant",
    "zeros",
    "row of zeros",
    "constant embedding",
    "duplicates",
    "dead features",
    "one feature repeated",
]


@pytest.mark.parametrize("n", [1, 2, 3, 10, 200])
@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_nothing_degenerate_breaks_a_score(case: str, n: int, dtype: Any) -> None:
    train = [layer.astype(dtype) for layer in broken(case, network(0, n))]
    detector = Detector(WEIGHT).fit(train[0], features=train[1:])
    like_training, fresh = broken(case, network(1, 40)), network(2, 40)
    odd = [np.vstack([np.zeros((1, w)), np.ones((1, w)), np.eye(w)[:1]]) for w in WIDTHS]
    for rows in (like_training, fresh, odd, [1e6 * layer for layer in fresh], train):
        result = ask(detector, [layer.astype(dtype) for layer in rows])
        for name in ("regret", "xtg", "leverage_by_layer", "pnml_probabilities"):
            assert not np.isnan(getattr(result, name)).any(), name
        assert (result.regret >= 0).all()
        assert (result.regret <= math.log(CLASSES) * (1 + 1e-6)).all()
    left_out = detector.score(train[0], features=train[1:], leave_one_out=True)
    assert ((left_out >= 0) & (left_out <= math.log(CLASSES) * (1 + 1e-6))).all()
    detector.calibrate(fresh[0].astype(dtype), features=[layer.astype(dtype) for layer in fresh[1:]])


@pytest.mark.parametrize("case", ["constant", "zeros"])
def test_leaving_what_never_varied_is_strange_and_staying_is_not(case: str) -> None:
    train, layer = broken(case, network(0, 300)), {"constant": 1, "zeros": 2}[case]
    detector = Detector(WEIGHT).fit(train[0], features=train[1:])
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
        result = detector(x[0], features=x[1:])
        assert np.isfinite(result.leverage_by_layer).all()
        assert ((result.regret >= 0) & (result.regret <= math.log(30))).all()


def test_one_product_for_all_layers_gives_the_leverages_of_one_a_layer() -> None:
    detector = fitted()
    depth, model = detector.model.depth, detector.model
    assert depth is not None
    for rows in (network(1, 100), [np.random.default_rng(3).normal(size=(100, w)) for w in WIDTHS]):
        x = torch.tensor(np.hstack(rows))
        embeddings = torch.nn.functional.normalize(x[:, : WIDTHS[0]])
        classes = torch.tensor(np.arange(100) % CLASSES)
        _, _, *constants = model.constants.to(x)
        expected = leverages(x, embeddings, classes, constants, depth).raw
        joined = Joined(depth)
        found = joined_leverages(unit_blocks(x, joined), classes, joined)
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e200])
def test_one_product_for_all_layers_knows_rows_that_it_cannot_compute_with(bad: float) -> None:
    depth = fitted().model.depth
    assert depth is not None
    x = torch.tensor(np.hstack(network(1, 3)))
    x[0, WIDTHS[0] + 1], x[1] = bad, 0.0  # in an earlier layer; and a row of zeros, whose leverages are known
    joined = Joined(depth)
    found = joined_leverages(unit_blocks(x, joined), torch.zeros(3, dtype=torch.int64), joined)
    assert found.isnan().any(dim=1).tolist() == [True, False, False]


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
    deep = Detector(weight).fit(train, features=[train[:, ::-1]])
    scores = [deep.score(x, features=[x[:, ::-1]]) for x in (known, strange)]
    assert (scores[0][:, None] < scores[1][None]).mean() > 0.9
