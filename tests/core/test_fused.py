"""Regrets in float16: the kernel in Triton's interpreter, the estimate of its error, and where it is not used.

Run as a program, this computes the cases below in the interpreter, which has to be chosen before Triton is imported.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any, NamedTuple
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from pnml import Detector, _rows, fused
from pnml.fused import MOST_CLASSES, Fused
from pnml.quick import LARGEST_ERROR

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pnml.scaling import EmbeddingScale

Matrix = np.ndarray[Any, Any]


class Case(NamedTuple):
    """A detector, the mean of its features by their deviation, and how many embeddings of which magnitude it meets.

    The label noise is that of the kernel when it is called alone.
    """

    width: int
    classes: int
    scale: EmbeddingScale
    noise: float
    mean: float
    rows: int
    magnitude: float


CASES = [  # blocks are 64 rows, 128 columns, 32 features; classes are padded to 16 or the next power of two
    Case(17, 2, "natural", 0.0, 2.0, 9, 1.0),
    Case(64, 16, "paper", 0.0, 2.0, 64, 1e12),
    Case(64, 5, "natural", 0.02, 2.0, 20, 1.0),
    Case(128, 10, "auto", 0.02, 0.6, 65, 1e-12),
    Case(300, 100, "paper", 0.02, 2.0, 130, 1.0),
    Case(512, MOST_CLASSES, "natural", 0.0, 2.0, 20, 1.0),
]


def exact(values: Matrix) -> Matrix:
    return values.astype(np.float64)


def rounded(values: Matrix) -> Matrix:
    """Round to eleven binary digits."""
    digits, exponents = np.frexp(values.astype(np.float64))
    return np.asarray(np.ldexp(np.round(digits * 2**11), exponents - 11))


def made(case: Case) -> tuple[Detector, Matrix]:
    rng = np.random.default_rng(case.width)
    strength = np.geomspace(1, 1e-2, case.width)
    features = np.maximum(rng.normal(case.mean, 1, size=(30 * case.width + case.rows, case.width)), 0) * strength
    weight = rng.normal(size=(case.classes, case.width)) * 3 / case.width
    detector = Detector(weight, rng.normal(size=case.classes), embedding_scale=case.scale)
    return detector.fit(features[case.rows :]), (case.magnitude * features[: case.rows]).astype(np.float32)


def with_odd_rows(detector: Detector, x: Matrix) -> Matrix:
    """Put rows at the beginning that the kernel cannot do: zero, too short, too long, and nothing but cancellation."""
    direction = x[:1] / np.linalg.norm(x[:1].astype(float))
    strongest = detector.subspace.eigenvectors[:, :1].T
    return np.vstack([0 * x[:1], 1e-18 * direction, 1e18 * direction, strongest, x[4:]]).astype(np.float32)


def of(detector: Detector, label_noise: float = 0.0) -> Fused:
    return Fused(*detector.scaled_head, detector.subspace, detector.embedding_scale, label_noise=label_noise)


def naive(
    detector: Detector, x: Matrix, label_noise: float = 0.0, factor: Callable[[Matrix], Matrix] = rounded
) -> Matrix:
    """Give the regrets by the formulas as they stand, but of rounded factors."""
    scale = 1.0 if detector.embedding_scale == "natural" else 1 / np.linalg.norm(x.astype(float), axis=1, keepdims=True)
    weight, bias = detector.scaled_head
    h = ((scale * factor(x) @ factor(detector.subspace.whitening)) ** 2).sum(axis=1, keepdims=True)
    p = np.exp(scale * factor(x) @ factor(weight).T + bias)
    p = (1 - label_noise) * p / p.sum(axis=1, keepdims=True) + label_noise / len(weight)
    return np.asarray(np.log((p / (p + p ** (h / (1 + h)) * (1 - p))).sum(axis=1)))


def interpret(path: str) -> None:
    """Compute the regrets of all cases, alone and as a detector gives them, and what NaN is answered with."""
    found = {}
    for k, case in enumerate(CASES):
        detector, x = made(case)
        odd = torch.tensor(with_odd_rows(detector, x))
        scorer = of(detector, case.noise)
        found[f"alone {k}"], found[f"trusted {k}"] = scorer.score(torch.tensor(x))[0], scorer.score(odd)[1]
        found[f"offered {k}"] = detector.score(odd, precision="float16").numpy()
        found[f"half {k}"] = detector.score(odd.bfloat16(), precision="float16").numpy()
        odd[4, 1] = torch.nan
        try:
            detector.score(odd, precision="float16")
        except ValueError as error:
            found[f"answer {k}"] = np.array(str(error))
    np.savez(path, **found)


@pytest.fixture(scope="module")
def interpreted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Matrix]:
    if importlib.util.find_spec("triton") is None:
        pytest.skip("Triton is not installed")
    path: Path = tmp_path_factory.mktemp("fused") / "found.npz"
    chosen = {**os.environ, "TRITON_INTERPRET": "1"}
    subprocess.run([sys.executable, "-W", "ignore", __file__, str(path)], check=True, env=chosen)
    return dict(np.load(path))


@pytest.mark.parametrize("k", range(len(CASES)), ids=map(str, CASES))
def test_the_kernel_gives_regrets_of_rounded_factors(interpreted: dict[str, Matrix], k: int) -> None:
    detector, x = made(CASES[k])
    found = interpreted[f"alone {k}"]
    assert found.dtype == np.float32
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found, naive(detector, x, CASES[k].noise), rtol=3e-5)
    unrounded = naive(detector, x, CASES[k].noise, exact)
    np.testing.assert_allclose(found, unrounded, rtol=of(detector).typical_error)
    assert np.abs(found / unrounded - 1).max() > 1e-5  # or it would not be of float16


@pytest.mark.parametrize("k", range(len(CASES)), ids=map(str, CASES))
def test_what_the_kernel_cannot_do_is_left_to_float64(interpreted: dict[str, Matrix], k: int) -> None:
    detector, x = made(CASES[k])
    odd = with_odd_rows(detector, x)
    trusted, found, exact = interpreted[f"trusted {k}"], interpreted[f"offered {k}"], detector.score(torch.tensor(odd))
    assert not trusted[:4].any()
    assert trusted[4:].all()
    np.testing.assert_array_equal(found[:4], exact[:4])
    np.testing.assert_allclose(found[4:], exact[4:], rtol=of(detector).typical_error)
    half = torch.tensor(odd).bfloat16()
    np.testing.assert_allclose(interpreted[f"half {k}"], detector.score(half), rtol=LARGEST_ERROR)
    assert str(interpreted[f"answer {k}"]).startswith("row 4 holds nan in column 1")


def correlated(width: int = 96, classes: int = 20) -> tuple[Detector, Matrix]:
    """Return a detector whose features are hard to tell from each other, and training rows."""
    rng = np.random.default_rng(5)
    common = rng.normal(size=(6000, 3)) @ rng.normal(size=(3, width))
    features = (common + rng.normal(size=(6000, width))) * np.geomspace(1, 0.1, width)
    features = features.astype(np.float32)
    weight = rng.normal(size=(classes, width)) * np.geomspace(1, 4, classes)[:, None]
    return Detector(weight, embedding_scale="paper").fit(features), features[:1500]


def test_the_estimate_is_what_rounding_does() -> None:
    detector, x = correlated()
    scorer = of(detector)
    whitening, weight = detector.subspace.whitening, detector.weight.T
    moved = rounded(x) @ rounded(whitening) - x.astype(float) @ whitening
    logits_moved = rounded(x) @ rounded(weight) - x.astype(float) @ weight
    # The estimate takes each entry to be off by 2⁻¹¹. Over evenly spread logarithms, the mean square is 0.425² of it.
    reached, logits_reached = np.sqrt(x.astype(float) ** 2 @ scorer.reach.T**2).T
    assert np.sqrt((moved**2).sum(axis=1).mean() / (reached**2).mean()) == pytest.approx(0.425, rel=0.15)
    by_class = np.sqrt((logits_moved**2).mean(axis=0) / (logits_reached**2).mean())
    assert by_class.max() == pytest.approx(0.425, rel=0.15)
    unit = np.linalg.norm(x, axis=1)
    root = np.sqrt(((x.astype(float) @ whitening) ** 2).sum(axis=1))
    typical = 2 * np.sqrt(np.mean((reached / root) ** 2)) + 2 * np.sqrt(np.mean((logits_reached / unit) ** 2))
    assert scorer.typical_error == pytest.approx(typical, rel=0.05)


def test_no_regret_is_further_off_than_the_estimate() -> None:
    detector, x = correlated()
    off = np.abs(naive(detector, x) / naive(detector, x, factor=exact) - 1)
    assert 0.02 * of(detector).typical_error < np.median(off)
    assert off.max() < of(detector).typical_error


def test_the_variance_inflation_factors_decide() -> None:
    rng = np.random.default_rng(1)
    features = rng.normal(size=(4000, 20))
    features[:, 0] = features[:, 1] + 0.003 * rng.normal(size=4000)
    detector = Detector(1e-3 * rng.normal(size=(3, 20)), embedding_scale="natural").fit(features)
    inflation = np.diag(np.linalg.inv(features.T @ features)) * (features**2).sum(axis=0)
    assert of(detector).typical_error == pytest.approx(2 * 2**-11 * np.sqrt(2 * inflation.mean()), rel=0.01)
    assert of(detector).typical_error > LARGEST_ERROR


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """Embeddings as if on a GPU of NVIDIA."""
    monkeypatch.setattr(_rows, "_runs_kernels", lambda _: True)
    with FakeTensorMode():
        return torch.empty(5, 96, device="cuda")


def test_float32_on_a_gpu_is_taken(taken: torch.Tensor) -> None:
    scorer = of(correlated()[0])
    assert scorer.suits(taken)
    assert scorer.suits(taken.half())
    assert scorer.suits(taken.bfloat16())


def test_what_no_kernel_takes_is_not(taken: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    detector, x = correlated()
    scorer = of(detector)
    assert not scorer.suits(x)
    assert not scorer.suits(torch.tensor(x))
    assert not scorer.suits(taken.double())
    assert not scorer.suits(taken.clone().requires_grad_())
    monkeypatch.setattr(_rows, "_runs_kernels", lambda _: False)
    assert not scorer.suits(taken)


def test_too_many_classes_and_unseen_directions_are_not(taken: torch.Tensor) -> None:
    rows = correlated()[1]
    unseen = rows * (np.arange(96) > 0)
    many, gap = np.zeros((MOST_CLASSES + 1, 96)), np.zeros((3, 96))
    assert not of(Detector(many, embedding_scale="paper").fit(rows)).suits(taken)
    assert of(Detector(many[1:], embedding_scale="paper").fit(rows)).suits(taken)
    assert not of(Detector(gap, embedding_scale="paper").fit(unseen)).suits(taken)


def test_weights_beyond_any_precision_are_not(taken: torch.Tensor) -> None:
    weight = np.full((3, 96), 1e200)
    weight[0] = 0
    assert not of(Detector(weight, embedding_scale="paper").fit(correlated()[1])).suits(taken)


@pytest.mark.parametrize("library", [np.asarray, torch.tensor])
def test_elsewhere_it_is_float32(library: Any) -> None:
    detector, x = correlated()
    rows = library(x)
    found = detector.score(rows, precision="float16")
    np.testing.assert_array_equal(found, detector.score(rows, precision="float32"))
    assert not (np.asarray(found) == np.asarray(detector.score(rows))).all()
    left_out = detector.score(rows, leave_one_out=True, precision="float16")
    np.testing.assert_array_equal(left_out, detector.score(rows, leave_one_out=True))


if __name__ == "__main__":
    with patch.object(fused, "_is_taken", return_value=True), patch.object(Fused, "hopper", new=False):  # it is no GPU
        interpret(sys.argv[1])
