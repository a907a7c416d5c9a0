from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pnml import Correlation, Subspace, regret
from pnml_bench.methods.gram import Gram, gram_pnml_regret, gram_score, validation_splits
from pnml_bench.methods.gram_features import GramRanges, gram_features
from pnml_bench.zoo.resnet import ResNetCifar

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from pnml_bench.zoo import Network

    Floats = NDArray[np.float64]


def oracle_features(activation: Tensor) -> Floats:
    """Return signed roots of the row sums of full Gram matrices in float64, shape (n, 10, channels)."""
    features = []
    for sample in activation.double().flatten(2).numpy():
        sums = np.array([(sample**order @ (sample**order).T).sum(1) for order in range(1, 11)])
        features.append(np.sign(sums) * abs(sums) ** (1 / np.arange(1, 11)[:, None]))
    return np.array(features)


@pytest.fixture(scope="module")
def network() -> Network:
    """Return a small float64 network; the bias of the head removes the mean logits, so that predictions vary."""
    torch.manual_seed(0)
    network = ResNetCifar(5, blocks=(1, 1), width=4).double().eval()
    with torch.no_grad():
        network.head.bias.copy_(-network(images(64, seed=1)).mean(0))
    return network


def images(n: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.randn(n, 3, 4, 4, generator=generator, dtype=torch.float64)
    return torch.nn.functional.interpolate(coarse, scale_factor=2, mode="bilinear")


def batches(x: Tensor, size: int) -> list[Tensor]:
    return [x[start : start + size] for start in range(0, len(x), size)]


@torch.no_grad()
def oracle_features_of_taps(network: Network, x: Tensor) -> tuple[list[Floats], Floats]:
    """Return the features of each tap, (n, 10 · channels) each, and softmax probabilities, one sample at a time."""
    rows, probabilities = [], []
    for sample in x:
        activations: list[Tensor] = []
        embedding = network.embed(sample[None], activations.append)
        rows.append([oracle_features(activation).reshape(-1) for activation in activations])
        probabilities.append(network.head(embedding).softmax(1)[0].double().numpy())
    return [np.array(tap) for tap in zip(*rows, strict=True)], np.array(probabilities)


def oracle_deviations(network: Network, train: Tensor, test: Tensor) -> Floats:
    """Compute the deviations from their definition, in loops over samples, taps and features."""
    train_taps, train_p = oracle_features_of_taps(network, train)
    test_taps, test_p = oracle_features_of_taps(network, test)
    result = np.zeros((len(test), len(test_taps)))
    for i, p in enumerate(test_p):
        same = train_p.argmax(1) == p.argmax()
        for t, features in enumerate(test_taps):
            reference = train_taps[t][same if same.any() else slice(None)]
            for value, low, high in zip(features[i], reference.min(0), reference.max(0), strict=True):
                result[i, t] += max(low - value, 0) / abs(low + 1e-6) + max(value - high, 0) / abs(high + 1e-6)
            result[i, t] /= p.max()
    return result


@pytest.mark.parametrize("shape", [(3, 5, 4, 6), (2, 1, 7), (1, 6, 1), (70, 64, 32)])
@pytest.mark.parametrize("relu", [False, True])
def test_gram_features_equal_those_of_the_full_gram_matrix(shape: tuple[int, ...], relu: bool) -> None:  # noqa: FBT001
    activation = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    activation = activation.relu() if relu else activation
    features = gram_features(activation)
    assert features.dtype == torch.float32
    assert features.shape == (shape[0], 10, shape[1])
    np.testing.assert_allclose(features.numpy(), oracle_features(activation), rtol=1e-5)


@settings(deadline=None, max_examples=50)
@given(st.floats(-12, 15), st.integers(0, 1000))
def test_gram_features_are_accurate_at_every_magnitude_and_beside_larger_channels(exponent: float, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    spread = 10.0 ** torch.tensor([0.0, -1.0, -3.0, -2.0])[:, None]
    activation = torch.rand(2, 4, 9, generator=generator) * spread * 10.0**exponent
    features = gram_features(activation)
    assert bool(torch.isfinite(features).all())
    scaled_back = features.double() / 100.0**exponent
    np.testing.assert_allclose(scaled_back, oracle_features(activation.double() / 10.0**exponent), rtol=1e-5)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 40), st.integers(1, 40), st.integers(0, 1000))
def test_ranges_are_the_extremes_of_each_class_for_any_batches(n: int, batch: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    values, predicted = rng.normal(size=(n, 7)).astype(np.float32), rng.integers(0, 4, n)
    rows, classes = torch.from_numpy(values), torch.from_numpy(predicted)
    ranges = GramRanges(5, [3, 4])
    for start in range(0, n, batch):
        ranges.update(rows[start : start + batch], classes[start : start + batch])
    for c in range(5):
        mine = values[predicted == c]
        low, high = (mine.min(0), mine.max(0)) if len(mine) else (np.full(7, np.inf), np.full(7, -np.inf))
        np.testing.assert_array_equal(ranges.minimum[c], low)
        np.testing.assert_array_equal(ranges.maximum[c], high)


def test_deviations_of_class_never_predicted_use_the_range_of_all_classes() -> None:
    ranges = GramRanges(3, [1]).update(torch.tensor([[1.0], [2.0], [4.0]]), torch.tensor([0, 0, 1]))
    values = torch.tensor([[0.5], [3.0], [6.0]])
    never = ranges.deviations(values, torch.tensor([2, 2, 2]))
    np.testing.assert_allclose(never[:, 0], [0.5, 0.0, 0.5], rtol=1e-5)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_check_raises_for_features_that_are_not_finite(value: float) -> None:
    values = torch.zeros(2, 6)
    values[1, 4] = value
    with pytest.raises(ValueError, match="tap 1 are not finite"):
        GramRanges(3, [4, 2]).update(values, torch.tensor([0, 1])).check()


def test_deviations_equal_those_of_explicit_loops(network: Network) -> None:
    train, test = images(30, seed=3), images(15, seed=4)
    with torch.no_grad():
        classes, test_classes = network(train).argmax(1), network(test).argmax(1)
    never = test_classes[0]
    train = train[classes != never]
    assert len(classes[classes != never].unique()) > 1
    found = Gram().fit(network, batches(train, 5)).deviations(network, batches(test, 4))
    np.testing.assert_allclose(found.numpy(), oracle_deviations(network, train, test), rtol=1e-4, atol=1e-6)


def test_compiled_features_equal_eager_ones(network: Network, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # traces, needs no C++ compiler
    train, test = images(12, seed=10), images(5, seed=11)
    expected = Gram().fit(network, batches(train, 6)).deviations(network, [test])
    found = Gram(compiled=True).fit(network, batches(train, 6)).deviations(network, [test])
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-6)


def test_gram_misuse_raises(network: Network) -> None:
    gram, batch = Gram(), images(4, seed=12)
    with pytest.raises(ValueError, match="not fitted"):
        gram.deviations(network, [batch])
    with pytest.raises(ValueError, match="at least one batch to fit on"):
        gram.fit(network, [])
    with pytest.raises(ValueError, match=r"call network\.eval\(\)"):
        gram.fit(ResNetCifar(5, blocks=(1, 1), width=4).train(), [batch])
    gram.fit(network, [batch])
    with pytest.raises(ValueError, match="at least one batch to score"):
        gram.deviations(network, iter(()))
    with pytest.raises(ValueError, match=r"network of 5 classes, as in fit\(\), got 3"):
        gram.deviations(ResNetCifar(3, blocks=(1, 1), width=4).eval(), [batch])


def test_validation_splits_are_seeded_disjoint_tenths() -> None:
    found = list(validation_splits(105))
    assert len(found) == 10
    for validation, rest in found:
        assert len(validation) == 10
        np.testing.assert_array_equal(np.sort(np.concatenate([validation, rest])), np.arange(105))
        assert (np.diff(rest) > 0).all()
    assert len({tuple(validation) for validation, _ in found}) == 10
    again = next(validation_splits(105, repeats=1))
    np.testing.assert_array_equal(again[0], found[0][0])
    assert not np.array_equal(next(validation_splits(105, seed=1))[0], found[0][0])
    with pytest.raises(ValueError, match=r"at least 10 samples .* got 9"):
        next(validation_splits(9))


def draw(*shape: int, seed: int) -> Tensor:
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_gram_score_is_the_mean_of_normalised_deviations() -> None:
    deviations, validation = draw(6, 3, seed=0), draw(4, 3, seed=1)
    expected = [
        sum(float(deviations[i, t]) / (sum(float(v) for v in validation[:, t]) + 1e-7) for t in range(3)) / 3
        for i in range(6)
    ]
    np.testing.assert_allclose(gram_score(deviations, validation), expected, rtol=1e-12)
    assert gram_score(deviations.float(), 0 * validation).isfinite().all()


def pnml_inputs(seed: int) -> Iterator[Tensor]:
    """Yield training embeddings, unit-norm test embeddings (one outside of the span), logits and deviations."""
    rng = np.random.default_rng(seed)
    train, test = rng.normal(size=(30, 6)), rng.normal(size=(8, 6))
    train[:, 4:] = 0
    test[1:, 4:] = 0
    test /= np.linalg.norm(test, axis=1, keepdims=True)
    logits = test @ rng.normal(size=(6, 4))
    deviations = rng.gamma(1.0, size=(8, 3)) * [1, 10, 100]
    deviations[2] = 0
    for array in (train, test, logits, deviations):
        yield torch.from_numpy(array)


def test_gram_pnml_is_the_regret_of_the_scaled_embeddings() -> None:
    train, test, logits, deviations = pnml_inputs(seed=0)
    validation = draw(5, 3, seed=2)
    subspace = Subspace.fit(Correlation().update(train))
    found = gram_pnml_regret(logits.log_softmax(1), subspace.leverage(test), deviations, validation)
    for i in range(len(test)):
        spread = validation.numpy().std(axis=0)
        factor = math.sqrt(float(np.mean(deviations[i].numpy() / spread)))
        p = logits[i].softmax(0).numpy()
        expected = regret(p, float(subspace.xtg((factor * test[i])[None].numpy())[0]))
        assert float(found[i]) == pytest.approx(float(expected), rel=1e-9)
    assert float(found[2]) == 0  # no deviation
