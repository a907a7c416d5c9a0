"""A guard that compiles what it runs answers as it did, from one graph, and leaves the model as it is."""

from __future__ import annotations

import copy
import gc
import logging
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, nn

import pnml
from pnml.pytorch.export import GuardGraph

from .networks import CNN, bert, images, loader, mlp, rows, sentences

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected, rtol=1e-4, atol=1e-5)


class Backend:
    """A backend of ``torch.compile`` that runs graphs as they are, and counts them."""

    def __init__(self) -> None:
        self.graphs: list[torch.fx.GraphModule] = []

    def __call__(self, graph: torch.fx.GraphModule, _example: list[Tensor]) -> Callable[..., Any]:
        self.graphs.append(graph)
        return graph.forward

    def convolutions(self) -> list[int]:
        return [sum("conv" in str(node.target) for node in graph.graph.nodes) for graph in self.graphs]


@pytest.fixture(autouse=True)
def _nothing_compiled_before() -> None:
    torch._dynamo.reset()


def guarded(model: nn.Module, train: Tensor, backend: Any = None, **options: Any) -> pnml.Guard:
    guard = pnml.guard(model, **options)
    if backend is not None:
        guard.compile(backend=backend)
    guard.fit(loader(train), progress=False)
    guard.calibrate(loader(train[:50] + 0.1), progress=False)
    return guard


def test_compiled_guard_answers_as_the_plain_one() -> None:
    model, x = CNN(), images(7, seed=1)
    plain, compiled = guarded(model, images(96)), guarded(model, images(96), backend=Backend())
    assert plain.layers == compiled.layers
    expected, result = plain(x), compiled(x)
    torch.testing.assert_close(result.logits, expected.logits)
    assert_close(result.regret, expected.regret)
    torch.testing.assert_close(result.p_value, expected.p_value)
    assert_close(result.leverage_by_layer, expected.leverage_by_layer)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of one part of torch at another
def test_default_backend_answers_as_the_plain_guard() -> None:
    guard, x = guarded(CNN(), images(96)), images(7, seed=1)
    expected = guard(x).regret
    guard.compile()
    torch.testing.assert_close(guard(x).regret, expected, rtol=1e-3, atol=1e-4)


def test_one_graph_holds_the_model_and_its_layers_for_every_batch_of_a_size() -> None:
    guard, backend = guarded(CNN(), images(96)), Backend()
    guard.compile(backend=backend, dynamic=False)
    for seed in range(3):
        guard(images(5, seed=seed))
    assert backend.convolutions() == [1]
    (graph,) = backend.graphs
    assert any("amax" in str(node.target) for node in graph.graph.nodes), "layers are pooled in the graph"


def test_batches_of_many_sizes_share_a_graph() -> None:
    guard, backend = guarded(CNN(), images(96)), Backend()
    guard.compile(backend=backend)
    for count in (4, 5, 6, 7, 9):
        guard(images(count))
    assert len(backend.graphs) <= 2, "one of the first size, one of any"


def test_more_guards_than_pytorch_keeps_versions_of_one_function() -> None:
    backend = Backend()
    for depth in range(1, 13):
        body = [part for _ in range(depth) for part in (nn.Linear(8, 8), nn.Tanh())]
        guard = guarded(nn.Sequential(*body, nn.Linear(8, 3)), rows(64))
        guard.compile(backend=backend)
        guard(rows(5))
        assert len(backend.graphs) == depth


def test_no_hook_is_left_and_the_model_itself_is_not_compiled() -> None:
    model = CNN().train()
    guard, backend = guarded(model, images(96)), Backend()
    guard.compile(backend=backend)
    guard(images(5))
    assert not any(module._forward_hooks for module in model.modules())
    assert all(module.training for module in model.modules())
    graphs = len(backend.graphs)
    model(images(3))
    assert len(backend.graphs) == graphs


@pytest.mark.parametrize("how", ["module", "weight", "in place"])
def test_what_is_changed_in_the_model_is_seen(how: str) -> None:
    model, other, x = CNN().eval(), CNN().eval(), images(5)
    guard = guarded(model, images(96))
    guard.compile(backend=Backend())
    guard(x)
    if how == "module":
        model.body[0] = other.body[0]
    elif how == "weight":
        model.body[0].weight = other.body[0].weight
    else:
        model.body[0].weight.data.mul_(0.5)  # type: ignore[operator]
    with pytest.warns(pnml.pytorch.weights.ModelChangedWarning):
        result = guard(x)
    torch.testing.assert_close(result.logits, model(x))


def test_padding_is_left_out() -> None:
    train = [sentences(16, seed=seed) for seed in range(6)]
    guard = pnml.guard(bert()).fit(train, progress=False)
    batch = sentences(4, seed=9)
    batch["attention_mask"][1:, 6:] = 0
    expected = guard(**batch)
    guard.compile(backend=Backend())
    result = guard(**batch)
    assert_close(result.regret, expected.regret)
    batch["input_ids"][1:, 6:] = 7
    assert_close(guard(**batch).regret, expected.regret)


def test_fused_transformers() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)

    class Mean(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.mean(dim=1)

    model = nn.Sequential(nn.TransformerEncoder(layer, 3), Mean(), nn.Linear(8, 4)).eval()
    guard = pnml.guard(model).fit([torch.randn(200, 6, 8)], progress=False)
    x = torch.randn(5, 6, 8)
    expected = guard(x)
    guard.compile(backend=Backend())
    assert_close(guard(x).leverage_by_layer, expected.leverage_by_layer)


def test_threads_get_their_own_answers() -> None:
    guard = guarded(CNN().eval(), images(96))
    batches = [images(4, seed=seed) for seed in range(8)]
    expected = [guard(x).regret for x in batches]
    guard.compile(backend=Backend())
    with ThreadPoolExecutor(4) as pool:
        for result, regret in zip(pool.map(guard, batches), expected, strict=True):
            assert_close(result.regret, regret)


def test_the_model_itself_may_run_in_other_threads_while_its_guard_compiles() -> None:
    model, x = CNN().eval(), images(4)
    guard = guarded(model, images(96))
    with torch.no_grad():
        expected = model(x)

    def compile_slowly(graph: torch.fx.GraphModule, _example: list[Tensor]) -> Callable[..., Any]:
        with torch.no_grad():
            answers.append(pool.submit(model, x).result(timeout=60))
        return graph.forward

    answers: list[Tensor] = []
    guard.compile(backend=compile_slowly)
    with ThreadPoolExecutor(1) as pool:
        guard(x)
    assert answers
    for answer in answers:
        assert_close(answer.detach(), expected)


def test_a_compiled_guard_keeps_no_batch() -> None:
    guard = guarded(CNN().eval(), images(96), backend=Backend())
    x = images(4)
    kept = weakref.ref(x)
    guard(x)
    del x
    gc.collect()
    assert kept() is None


def test_copy_save_and_export_after_compiling(tmp_path: Path) -> None:
    model, x = CNN().eval(), images(5)
    guard = guarded(model, images(96), backend=Backend())
    expected = guard(x).regret
    assert_close(copy.deepcopy(guard)(x).regret, expected)
    assert_close(pickle.loads(pickle.dumps(guard))(x).regret, expected)  # noqa: S301 - as a process of a pool gets it
    guard.save(tmp_path / "detector.safetensors")
    loaded = pnml.guard(model).load(tmp_path / "detector.safetensors")
    loaded.compile(backend=Backend())
    assert_close(loaded(x).regret, expected)
    program = torch.export.export(GuardGraph(guard.eval()), (x,), strict=False)
    assert_close(program.module()(x)[2], expected)


def test_torch_compile_of_a_guard_leaves_it_whole(caplog: pytest.LogCaptureFixture) -> None:
    guard, x, backend = guarded(CNN(), images(96)), images(5), Backend()
    expected = guard(x).regret
    wrapped: Any = torch.compile(guard, backend=backend)
    with caplog.at_level(logging.INFO, logger="pnml"):
        torch.testing.assert_close(wrapped(x).regret, expected)
    assert not backend.graphs
    assert "guard.compile() compiles what the guard runs" in caplog.text
    guard.compile(backend=backend)
    assert_close(wrapped(x).regret, expected)
    assert backend.convolutions() == [1]


def test_a_compiled_model_that_runs_uncompiled_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    compiled: Any = torch.compile(mlp(), backend="eager")
    with caplog.at_level(logging.INFO, logger="pnml"):
        pnml.guard(compiled).fit(loader(rows(64)), progress=False)
    assert "the compiled model runs uncompiled in the guard" in caplog.text
    caplog.clear()
    guard = pnml.guard(compiled)
    guard.compile(backend=Backend())
    with caplog.at_level(logging.INFO, logger="pnml"):
        guard.fit(loader(rows(64)), progress=False)
    assert "uncompiled" not in caplog.text


def test_a_model_that_cannot_be_one_graph() -> None:
    class Reads(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * (2 if float(x.sum()) > 1e9 else 1)

    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 12), nn.Tanh(), Reads(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 3))
    guard, x = guarded(model, rows(64)), rows(5)
    expected = guard(x)
    guard.compile(backend=Backend())
    assert_close(guard(x).leverage_by_layer, expected.leverage_by_layer)


def test_options_by_position_and_an_embed_function_are_refused() -> None:
    with pytest.raises(TypeError, match="go by their names"):
        pnml.guard(mlp()).compile("inductor")
    model = CNN()
    given = pnml.guard(model, head="classifier", embed=lambda model, x: model.features(x))
    with pytest.raises(ValueError, match="embed= runs the model by itself"):
        given.compile()
