"""The published arithmetic against NumPy's pseudo-inverse, and against ours where float32 is enough."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.special import softmax

from pnml_bench.methods import PublishedDetector
from pnml_bench.methods.regret import PublishedLeverage, PublishedRegret

if TYPE_CHECKING:
    from pnml_bench.methods import View


def rows(count: int, width: int, seed: int) -> torch.Tensor:
    return torch.randn(count, width, generator=torch.Generator().manual_seed(seed))


def test_leverage_is_that_of_a_pseudo_inverse_in_float32() -> None:
    train, x = rows(50, 6, 0), rows(9, 6, 1)
    inverse = np.linalg.pinv((train.T @ train).numpy(), rcond=1e-15).astype(np.float64)
    expected = np.abs(np.einsum("ij,jk,ik->i", x.double().numpy(), inverse, x.double().numpy()))
    found = PublishedLeverage(train).leverage(x)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4)


def test_regret_is_that_of_the_theorem_at_norm_1() -> None:
    weight, bias, train, x = rows(4, 6, 2), rows(1, 4, 3)[0], rows(50, 6, 0), 7 * rows(9, 6, 1)
    unit, unit_train = (one.double().numpy() / np.linalg.norm(one.numpy(), axis=1, keepdims=True) for one in (x, train))
    p = softmax(unit @ weight.double().numpy().T + bias.double().numpy(), axis=1)
    h = np.einsum("ij,jk,ik->i", unit, np.linalg.inv(unit_train.T @ unit_train), unit)
    t = (h / (1 + h))[:, None]
    expected = np.log((p / (p + p**t * (1 - p))).sum(axis=1))
    np.testing.assert_allclose(PublishedDetector(weight, bias, train).score(x).numpy(), expected, rtol=1e-3)


def test_method_scores_as_its_detector_does(train: View) -> None:
    method = PublishedRegret().fit(train)
    head = train.network.head
    expected = PublishedDetector(head.weight.detach(), head.bias.detach(), train.embeddings).score(train.embeddings)
    assert torch.equal(method.score(train), expected)
    assert method.settings == {"arithmetic": "published", "rcond": 1e-15}
    assert not method.composes
