"""The kernel for Hopper: its tiles, multiplied by NumPy as it takes them; where it is used; and itself, on a GPU."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any
from unittest.mock import Mock

import numpy as np
import pytest
import torch

from oracles import NOISE
from pnml import Detector, _fused_kernel, _hopper_kernel
from pnml._factors import Factors, factors
from pnml._hopper_kernel import MOST_CLASSES, MOST_FEATURES, Tiles
from pnml.fused import Fused

if TYPE_CHECKING:
    from pathlib import Path

Matrix = np.ndarray[Any, Any]


def capability() -> tuple[int, int]:
    return torch.cuda.get_device_capability() if torch.cuda.is_available() else (0, 0)


def fitted(width: int, classes: int, scale: Any = "auto") -> tuple[Detector, Matrix]:
    rng = np.random.default_rng(width + classes)
    features = np.maximum(rng.normal(1, 1, size=(20 * width + 500, width)), 0) * np.geomspace(1, 1e-3, width)
    weight = rng.normal(size=(classes, width)) * 3 / width
    detector = Detector(weight, rng.normal(size=classes), embedding_scale=scale).fit(features[500:])
    return detector, features[:500].astype(np.float32)


def of(detector: Detector) -> Fused:
    return Fused(*detector.scaled_head, detector.subspace, detector.embedding_scale, label_noise=detector.label_noise)


def factors_of(detector: Detector) -> Factors:
    return factors(*detector.scaled_head, detector.subspace, of(detector).reach)


@pytest.mark.parametrize(("width", "classes"), [(17, 2), (64, 64), (130, 65), (300, 100), (512, 128)])
def test_powers_of_two_bring_everything_into_the_range_of_float16(width: int, classes: int) -> None:
    detector, x = fitted(width, classes, "natural")
    held = factors_of(detector)
    assert set(np.frexp([*held.features[0], held.of_h, held.of_logits])[0]) == {0.5}
    typical = np.sqrt((held.features[0] * x) ** 2).mean(axis=0)
    assert typical.min() > 0.25
    assert typical.max() < 4
    assert 128 < np.abs(held.weight).max() < 512
    np.testing.assert_allclose(held.weight * held.features[0] * held.of_logits, detector.weight, rtol=2**-11, atol=1e-9)
    whitening = held.whitening * held.features[0] * np.sqrt(held.of_h)
    rest = whitening - detector.subspace.whitening.T
    assert (np.abs(rest) <= 2**-11 * np.abs(whitening) + 2**-24 * held.features[0] * np.sqrt(held.of_h)).all()


@pytest.mark.parametrize(("width", "classes"), [(17, 2), (64, 64), (130, 65), (300, 100), (512, 128)])
def test_tiles_are_what_the_kernel_multiplies_in_turn(width: int, classes: int) -> None:
    detector, x = fitted(width, classes)
    held = factors_of(detector)
    tiles = Tiles(held)
    (stream,) = tiles.half.beside(np.zeros(1), np.float64)
    features, bias = tiles.single.beside(np.zeros(1), np.float64)
    coming = iter(stream)
    rows = np.pad(x, ((0, 0), (0, -width % 64))) * features[0]
    across = rows.shape[1] // 64
    parts = [rows[:, 64 * k : 64 * k + 64] for k in reversed(range(across))]  # the last features first
    squares = [sum(part @ next(coming).T for part in parts[: j + 1]) ** 2 for j in range(across)]
    logits = np.zeros((len(x), len(bias)))
    for part in parts:
        logits += part @ np.vstack([next(coming) for _ in range(len(bias) // 64)]).T
    assert next(coming, None) is None
    scaled = x * held.features[0].astype(float)
    np.testing.assert_allclose(sum(squares).sum(axis=1), ((scaled @ held.whitening.T.astype(float)) ** 2).sum(axis=1))
    np.testing.assert_allclose(logits[:, :classes], scaled @ held.weight.T.astype(float), rtol=1e-9, atol=1e-9)
    assert (logits[:, classes:] == 0).all()
    np.testing.assert_allclose(bias[:classes] * np.log(2), detector.scaled_head[1], rtol=1e-6)
    assert (bias[classes:] <= -1e30).all()
    assert (tiles.classes, tiles.across, tiles.parts) == (classes, across, -(-classes // 64))


def test_it_is_for_hopper_and_what_fits_its_registers(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("triton.experimental.gluon", reason="Triton is not installed")
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (9, 0))
    assert _hopper_kernel.suits(torch.empty(5, MOST_FEATURES), MOST_CLASSES)
    assert not _hopper_kernel.suits(torch.empty(5, MOST_FEATURES + 4), MOST_CLASSES)
    assert not _hopper_kernel.suits(torch.empty(5, MOST_FEATURES), MOST_CLASSES + 1)
    assert not _hopper_kernel.suits(torch.empty(5, 30), 10)  # rows do not begin at multiples of 16 bytes
    assert not _hopper_kernel.suits(torch.empty(33)[1:].view(1, 32), 10)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: (10, 0))
    assert not _hopper_kernel.suits(torch.empty(5, 32), 10)


def test_where_it_cannot_be_compiled_the_other_kernel_takes_over_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    detector, x = fitted(64, 5)
    broken, other = Mock(side_effect=AttributeError("no such instruction")), Mock(return_value=torch.ones(500))
    monkeypatch.setattr(Fused, "hopper", True)
    monkeypatch.setattr(_hopper_kernel, "suits", lambda *_: True)
    monkeypatch.setattr(_hopper_kernel, "regrets", broken)
    monkeypatch.setattr(_fused_kernel, "regrets", other)
    for scorer in (of(detector), of(detector)):
        found, trusted = scorer.score(torch.tensor(x))
        assert (found == 1).all()
        assert trusted.all()
    assert broken.call_count == 1
    assert other.call_count == 2
    assert other.call_args.kwargs == {"unit_norm": True, "label_noise": NOISE}


class Absent:
    """A driver of a GPU that is not there, for which Triton compiles all the same."""

    def get_current_target(self) -> Any:
        return pytest.importorskip("triton.backends.compiler").GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


class Compiled:
    """Stands for the kernel, and compiles it instead of launching it."""

    def __init__(self, kernel: Any) -> None:
        self.kernel = kernel

    def __getitem__(self, grid: Any) -> Any:
        def launch(*arguments: Any, **options: Any) -> None:
            self.grid, self.found = grid, self.kernel.warmup(*arguments, grid=grid, **options)

        return launch


@pytest.mark.filterwarnings("ignore:TRITON_DEFAULT_FP_FUSION")  # what Triton will do by default one day
def test_it_can_be_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    pytest.importorskip("triton.experimental.gluon", reason="Triton is not installed")
    detector, x = fitted(100, 5)
    stands = Compiled(_hopper_kernel._kernel())
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(_hopper_kernel, "_kernel", lambda: stands)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: Mock(multi_processor_count=3))
    monkeypatch.setattr(importlib.import_module("triton.runtime.driver").driver, "_active", Absent())
    out = _hopper_kernel.regrets(torch.tensor(x), Tiles(factors_of(detector)), unit_norm=True, label_noise=0.02)
    assert out.shape == (500,)
    assert stands.grid == (3,)
    assert stands.found.asm["ptx"].count("wgmma.mma_async") == 4 * (3 + 2)  # of 16 features, in 5 tiles of 64
    assert stands.found.metadata.shared < 227 << 10


@pytest.mark.skipif(capability() < (8, 0), reason="needs an NVIDIA GPU since Ampere")
@pytest.mark.parametrize("hopper", [False, True], ids=["plain", "hopper"])
@pytest.mark.parametrize(("width", "classes", "scale"), [(64, 5, "natural"), (300, 100, "paper"), (512, 128, "auto")])
def test_on_a_gpu(  # pragma: no cover
    width: int, classes: int, scale: Any, *, hopper: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if hopper and capability()[0] != 9:
        pytest.skip("needs an NVIDIA GPU of the Hopper generation")
    monkeypatch.setattr(Fused, "hopper", hopper)
    detector, x = fitted(width, classes, scale)
    rows = torch.tensor(x, device="cuda")
    rows[0] *= 1e12
    rows[1] *= 1e-12
    rows[2] = 0
    scorer = of(detector)
    assert scorer.suits(rows)
    found, trusted = scorer.score(rows)
    assert Fused.hopper == hopper  # it did not fail
    assert not trusted[2]
    assert trusted[3:].all()
    exact = detector.score(rows.double()).float()
    torch.testing.assert_close(found[3:], exact[3:], rtol=scorer.typical_error, atol=0)
    torch.testing.assert_close(detector.score(rows, precision="float16"), exact, rtol=scorer.typical_error, atol=0)
    assert torch.equal(torch.nan_to_num(found), torch.nan_to_num(scorer.score(rows)[0]))  # to the last bit
