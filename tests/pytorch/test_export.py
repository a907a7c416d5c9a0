"""The guard as one graph: what ONNX Runtime and torch.export give is what the guard gives."""

from __future__ import annotations

import math
import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import pnml
from pnml.core.calibration import PooledClassesWarning
from pnml.pytorch.export import OUTPUTS, GuardGraph

from .networks import CNN, bert, images, loader, mlp, rows, seeded, sentences

if TYPE_CHECKING:
    from pathlib import Path

    from pnml.core.scaling import EmbeddingScale

pytestmark = pytest.mark.slow

DYNAMIC = {0: torch.export.Dim.DYNAMIC}


def run(path: Path, **inputs: Tensor) -> dict[str, np.ndarray[Any, Any]]:
    """Give the outputs of an ONNX file by name."""
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    feed = {name: tensor.numpy() for name, tensor in inputs.items()}
    return dict(zip(names, session.run(None, feed), strict=True))


def assert_agree(outputs: dict[str, np.ndarray[Any, Any]], result: pnml.Result, guard: pnml.Guard) -> None:
    np.testing.assert_allclose(outputs["logits"], result.logits, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(outputs["probabilities"], result.probabilities, atol=1e-5)
    regret, atol = np.asarray(result.regret, np.float64), 1e-5
    np.testing.assert_allclose(outputs["regret"], regret, rtol=0, atol=atol)
    if threshold := guard.fitted().threshold:  # both decisions are right within the tolerance of the regret
        least, most = threshold.p_value(regret + atol), threshold.p_value(regret - atol)
        assert (outputs["p_value"] >= least - 1e-6).all()
        assert (outputs["p_value"] <= most + 1e-6).all()
        clear = np.abs(regret - threshold.value) > atol
        np.testing.assert_array_equal(outputs["is_ood"][clear], np.asarray(result.is_ood)[clear])


def calibrated(model: nn.Module, embedding_scale: EmbeddingScale) -> pnml.Guard:
    guard = pnml.guard(model, embedding_scale=embedding_scale).fit(loader(images(100)), progress=False)
    guard.calibrate(loader(images(60, seed=1)), false_alarm_rate=0.2, progress=False)
    return guard


@pytest.mark.parametrize("embedding_scale", ["auto", "natural"])
def test_calibrated_guard_in_onnx_runtime(embedding_scale: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = CNN().train()
    guard = calibrated(model, embedding_scale)
    path = tmp_path / "guarded.onnx"
    assert len(guard.layers) == (2 if embedding_scale == "auto" else 0)
    assert pnml.export_onnx(guard, (images(4), torch.zeros(4)), str(path)) == path
    assert [file.name for file in tmp_path.iterdir()] == ["guarded.onnx"], "weights and all in one file"
    assert all(module.training for module in model.modules()), "the model is left as it was"
    for count in (1, 2, 4, 37):
        outputs = run(path, input=images(count, seed=2))
        assert tuple(outputs) == OUTPUTS
        assert outputs["is_ood"].dtype == bool
        assert_agree(outputs, guard(images(count, seed=2)), guard)
    far = run(path, input=images(30, seed=2) * torch.linspace(0, 30, 30)[:, None, None, None])
    assert 0 < far["is_ood"].sum() < 30, "both decisions occur"


def test_uncalibrated_transformer_with_keyword_inputs(tmp_path: Path) -> None:
    guard = pnml.guard(bert()).fit([sentences(50, seed) for seed in range(4)], progress=False)
    assert len(guard.layers) == 2
    path = pnml.export_onnx(guard, {**sentences(4), "output_attentions": False}, tmp_path / "guarded.onnx")
    batch = sentences(9, seed=7)
    outputs = run(path, input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    assert tuple(outputs) == ("logits", "probabilities", "regret")
    assert_agree(outputs, guard(**batch), guard)


def test_padding_in_onnx_runtime(tmp_path: Path) -> None:
    """The graph leaves masked tokens out, as the guard does."""
    guard = pnml.guard(bert()).fit([sentences(50, seed) for seed in range(4)], progress=False)
    path = pnml.export_onnx(guard, sentences(4), tmp_path / "guarded.onnx")
    batch = sentences(9, seed=7)
    batch["attention_mask"][:, 6:] = 0
    batch["attention_mask"][3:, 2:] = 0
    outputs = run(path, input_ids=batch["input_ids"], attention_mask=batch["attention_mask"])
    assert_agree(outputs, guard(**batch), guard)


class Counting(nn.Module):
    """The mean of so many steps as it is told."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.steps, self.head = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 8)), nn.Linear(8, 4)

    def forward(self, x: Tensor, lengths: Tensor) -> Tensor:
        share = (torch.arange(x.shape[1]) < lengths[:, None]) / lengths[:, None]
        logits: Tensor = self.head((self.steps(x) * share[:, :, None]).sum(dim=1))
        return logits


def test_lengths_in_onnx_runtime(tmp_path: Path) -> None:
    def batch(count: int, seed: int) -> tuple[Tensor, Tensor]:
        return torch.randn(count, 7, 3, generator=seeded(seed)), torch.randint(2, 8, (count,), generator=seeded(seed))

    guard = pnml.guard(Counting(), inputs=tuple).fit([batch(50, seed) for seed in range(4)], progress=False)
    path = pnml.export_onnx(guard, batch(4, 7), tmp_path / "guarded.onnx")
    x, lengths = batch(9, 8)
    assert_agree(run(path, x=x, lengths=lengths), guard(x, lengths), guard)


def test_sequences_of_any_length_in_onnx_runtime(tmp_path: Path) -> None:
    guard = pnml.guard(bert()).fit([sentences(50, seed) for seed in range(4)], progress=False)
    guard.calibrate([sentences(60, seed=5)], false_alarm_rate=0.2, progress=False)
    path = pnml.export_onnx(guard, sentences(4), tmp_path / "guarded.onnx")
    flagged = 0
    for count, length in ((1, 2), (3, 7), (9, 10), (4, 16)):
        ids = torch.randint(0, 50, (count, length), generator=seeded(length))
        mask = torch.ones(count, length, dtype=torch.long)
        mask[1:, length // 2 + 1 :] = 0
        outputs = run(path, input_ids=ids, attention_mask=mask)
        assert_agree(outputs, guard(input_ids=ids, attention_mask=mask), guard)
        flagged += int(outputs["is_ood"].sum())
    assert 0 < flagged < 17, "both decisions occur"


def test_a_model_for_sequences_of_one_length_is_exported_for_that(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Embedding(50, 4), nn.Flatten(), nn.Linear(24, 3))
    guard = pnml.guard(model, layers="last").fit([torch.randint(0, 50, (100, 6))], progress=False)
    path = pnml.export_onnx(guard, torch.randint(0, 50, (4, 6)), tmp_path / "guarded.onnx")
    tokens = torch.randint(0, 50, (9, 6))
    assert_agree(run(path, input=tokens), guard(tokens), guard)
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument, match="Got: 7 Expected: 6"):
        run(path, input=torch.randint(0, 50, (9, 7)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_threshold_is_an_input_with_the_calibrated_one_as_default(dtype: torch.dtype, tmp_path: Path) -> None:
    guard = pnml.guard(mlp().to(dtype)).fit([rows(200).to(dtype)], progress=False)
    threshold = guard.calibrate([rows(99, seed=1).to(dtype)], false_alarm_rate=0.2, progress=False)
    path = pnml.export_onnx(guard, rows(4).to(dtype), tmp_path / "guarded.onnx")
    onnx.checker.check_model(path, full_check=True)
    fresh = rows(50, seed=2).to(dtype)
    outputs = run(path, input=fresh)
    regret = outputs["regret"].astype(np.float64)
    clear = np.abs(regret - threshold.value) > 1e-5
    np.testing.assert_array_equal(outputs["is_ood"][clear], (regret > threshold.value)[clear])
    assert 0 < outputs["is_ood"].sum() < 50
    for value in (0.0, float(np.median(regret)), 10.0):
        told = run(path, input=fresh, threshold=torch.tensor(value, dtype=dtype))
        clear = np.abs(regret - value) > 1e-9
        np.testing.assert_array_equal(told["is_ood"][clear], (regret > value)[clear])
        np.testing.assert_array_equal(told["p_value"], outputs["p_value"])
    missing = fresh.clone()
    missing[7, 0] = torch.nan
    assert run(path, input=missing, threshold=torch.tensor(10.0, dtype=dtype))["is_ood"].nonzero()[0].tolist() == [7]


def test_a_threshold_by_prediction_is_an_input_with_one_entry_per_class(tmp_path: Path) -> None:
    guard = pnml.guard(mlp()).fit([rows(200)], progress=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PooledClassesWarning)
        guard.calibrate([rows(400, seed=1)], false_alarm_rate=0.2, by="prediction", progress=False)
    path = pnml.export_onnx(guard, rows(4), tmp_path / "guarded.onnx")
    fresh = rows(60, seed=2)
    outputs, result = run(path, input=fresh), guard(fresh)
    prediction, regret = outputs["logits"].argmax(axis=1), outputs["regret"].astype(np.float64)
    threshold = guard.fitted().threshold
    assert threshold is not None
    limits = np.array([one.value for one in threshold.classes])
    clear = np.abs(regret - limits[prediction]) > 1e-5
    np.testing.assert_array_equal(outputs["is_ood"][clear], np.asarray(result.is_ood)[clear])
    told = run(path, input=fresh, threshold=torch.tensor([0.0, 9, 9, 9, 9]))
    np.testing.assert_array_equal(told["is_ood"], prediction == 0)


def test_positional_inputs_are_named_as_the_models_arguments(tmp_path: Path) -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, left: Tensor, right: Tensor) -> Tensor:
            logits: Tensor = self.inner(left - right)
            return logits

    guard = pnml.guard(Pair()).fit([(rows(100), rows(100, seed=1), torch.zeros(100))], progress=False)
    path = pnml.export_onnx(guard, (rows(4), rows(4), torch.zeros(4)), tmp_path / "guarded.onnx")
    outputs = run(path, left=rows(9, seed=2), right=rows(9, seed=3))
    assert_agree(outputs, guard(rows(9, seed=2), rows(9, seed=3)), guard)


@pytest.mark.parametrize(
    ("dtype", "embedding_scale"),
    [(torch.float32, "auto"), (torch.float64, "natural"), (torch.bfloat16, "auto"), (torch.bfloat16, "paper")],
)
def test_exported_program_round_trip(dtype: torch.dtype, embedding_scale: Any, tmp_path: Path) -> None:
    """Also where the precision of the embeddings decides which of them count as unseen."""
    model = mlp()
    weight = model.get_parameter("0.weight")
    weight.data[5:] = weight.data[:7] * 1e-2
    model.to(dtype)
    guard = pnml.guard(model, embedding_scale=embedding_scale)
    guard.fit(loader(rows(100).to(dtype)), progress=False).eval()
    guard.calibrate(loader(rows(60, seed=1).to(dtype)), progress=False)
    with torch.no_grad():
        program = torch.export.export(
            GuardGraph(guard), (rows(8).to(dtype),), dynamic_shapes={"args": (DYNAMIC,)}, strict=False
        )
    torch.export.save(program, tmp_path / "guarded.pt2")
    loaded = torch.export.load(tmp_path / "guarded.pt2").module()
    fresh = rows(20, seed=2).to(dtype)
    result, threshold = guard(fresh), guard.fitted().threshold
    assert threshold is not None
    with torch.no_grad():
        outputs = dict(zip(OUTPUTS, loaded(fresh), strict=True))
    assert outputs["regret"].dtype == result.regret.dtype
    for name in ("logits", "probabilities"):
        torch.testing.assert_close(outputs[name], getattr(result, name), rtol=1e-6, atol=1e-7, check_dtype=False)
    # The graph computes in float64, the guard in float32 within its bound; decisions are those of the graph's regret.
    torch.testing.assert_close(outputs["regret"], result.regret, rtol=1e-2, atol=0)
    regret = outputs["regret"].double()
    torch.testing.assert_close(outputs["p_value"].double(), threshold.p_value(regret), rtol=1e-6, atol=0)
    assert torch.equal(outputs["is_ood"], threshold.is_ood(outputs["regret"]))


def test_exported_program_compiles_whole() -> None:
    guard = pnml.guard(mlp()).fit(loader(rows(100)), progress=False).eval()
    with torch.no_grad():
        program = torch.export.export(GuardGraph(guard), (rows(8),), dynamic_shapes={"args": (DYNAMIC,)}, strict=False)
        compiled = torch.compile(program.module(), backend="aot_eager", fullgraph=True)
        _, _, regret = compiled(rows(20, seed=1))
    torch.testing.assert_close(regret, guard(rows(20, seed=1)).regret)


@pytest.mark.filterwarnings("ignore:.*torch.jit.* is deprecated:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Converting a tensor to a Python boolean:torch.jit.TracerWarning")
def test_traced_graph() -> None:
    guard = pnml.guard(mlp()).fit(loader(rows(100)), progress=False).eval()
    with torch.no_grad():
        traced = torch.jit.trace(GuardGraph(guard), (rows(8),))  # type: ignore[no-untyped-call]
        _, _, regret = traced(rows(20, seed=1))
    torch.testing.assert_close(regret, guard(rows(20, seed=1)).regret)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf])
def test_what_is_not_finite_is_flagged(bad: float) -> None:
    guard = pnml.guard(mlp()).fit(loader(rows(100)), progress=False).eval()
    guard.calibrate(loader(rows(99, seed=1)), progress=False)
    x = rows(3) * 0.1
    x[1, 0] = bad
    _, _, regret, p_value, is_ood = GuardGraph(guard)(x)
    assert regret.isnan().tolist() == [False, True, False]
    assert float(p_value[1]) == pytest.approx(1 / 100)
    assert bool(is_ood[1])


def test_a_feature_that_is_not_finite_is_flagged() -> None:
    class Clamped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Linear(8, 4), nn.Linear(4, 3)

        def forward(self, x: Tensor) -> Tensor:
            logits: Tensor = self.last(self.first(x).clamp(-1, 1))
            return logits

    model = Clamped()
    model.first.weight.data.abs_().add_(1)
    guard = pnml.guard(model).fit(loader(rows(100)), progress=False).eval()
    assert guard.layers == ("first", "input")
    x = rows(3)
    x[1] = torch.tensor([torch.finfo(torch.float32).max] * 8)
    _, _, regret = GuardGraph(guard)(x)
    assert regret.isnan().tolist() == [False, True, False]
    assert guard(x).regret.isnan().tolist() == [False, True, False]


def test_what_cannot_be_exported_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "guarded.onnx"
    with pytest.raises(ValueError, match="not fitted"):
        pnml.export_onnx(pnml.guard(mlp()), rows(4), path)
    guard = pnml.guard(mlp()).fit(loader(rows(100)), progress=False)
    with pytest.raises(ValueError, match="at least two samples"):
        pnml.export_onnx(guard, rows(1), path)
    with pytest.raises(TypeError, match="the loader yielded str"):
        pnml.export_onnx(guard, "images", path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("embedding_scale", ["auto", "paper"])
def test_an_embedding_of_norm_zero_gets_the_largest_regret_and_is_flagged(embedding_scale: Any) -> None:
    model = nn.Sequential(nn.ReLU(), nn.Linear(5, 3))
    x = torch.rand(100, 5, generator=torch.Generator().manual_seed(0))
    guard = pnml.guard(model, layers="last", embedding_scale=embedding_scale).fit([x], progress=False).eval()
    guard.calibrate([x], leave_one_out=True, progress=False)
    _, _, regret, p_value, is_ood = GuardGraph(guard)(torch.cat([x[:1], torch.full((1, 5), -1.0)]))
    assert float(regret[1]) == pytest.approx(math.log(3), rel=1e-6)
    assert float(p_value[1]) == pytest.approx(1 / 101, rel=1e-6)
    assert bool(is_ood[1])
