"""Models on the command line: factories, transforms, weights and heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from pnml import Detector, guard

from .cli_files import MODEL, MODULE, PREPARED, fails, fitted_on_images, network, pixels_of, run, succeeds, table_of

if TYPE_CHECKING:
    from pathlib import Path


TRANSFORMED = (
    MODULE
    + """
import numpy as np, torch

def half(picture):
    return torch.from_numpy(np.asarray(picture).transpose(2, 0, 1) / 510).float()

def with_transform():
    return create(), half

def with_bad_transform():
    return create(), lambda picture: picture

def in_double_precision():
    return create().double()

class Compiled(torch.nn.Module):  # as torch.compile wraps a model, without its seconds of start
    def __init__(self):
        super().__init__()
        self._orig_mod = create()

def no_model():
    return 3

def breaks():
    raise KeyError("no such layer")

class TwoOutputs(torch.nn.Module):
    def forward(self, x):
        return x, x

class NoHead(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(48, 3)

    def forward(self, x):
        return 2 * self.fc(x.flatten(1))

class Bent(NoHead):
    def forward(self, x):
        return torch.tanh(self.fc(x.flatten(1)))

class OutOfMemory(NoHead):
    def forward(self, x):
        raise torch.OutOfMemoryError("CUDA out of memory")

"""
)


@pytest.fixture
def transformed(folder: Path) -> Path:
    (folder / "made_with_transform.py").write_text(TRANSFORMED)
    (folder / "made_wrong.py").write_text("def create(:")
    return folder


@pytest.mark.filterwarnings("ignore::pnml.cli.fit.EmptyClassesWarning")  # the network is not trained
def test_transform_of_the_factory_is_used(transformed: Path) -> None:
    model = ("--model", "made_with_transform:with_transform", "--weights", "model.safetensors")
    words = ("fit", *model, "--images", "train", "--out", "own.safetensors")
    succeeds(*words)
    halves = torch.from_numpy(pixels_of(transformed / "train").transpose(0, 3, 1, 2) / 510).float()
    expected = guard(network()).fit([halves], progress=False).fitted()
    found = Detector.load(transformed / "own.safetensors")
    np.testing.assert_allclose(found.spectrum, expected.spectrum, rtol=1e-5, atol=1e-7)
    assert "brings its own transform: leave --size, --mean and --std out" in fails(*words, "--size", 4)


@pytest.mark.parametrize("factory", ["in_double_precision", "Compiled"])
def test_double_precision_and_compiled_models_are_scored(factory: str, transformed: Path) -> None:
    words = ("--model", f"made_with_transform:{factory}", "--weights", "model.safetensors", "--images", "train")
    succeeds("fit", *words, "--out", "detector.safetensors")
    succeeds("score", "detector.safetensors", *words, "--out", "scores.csv")
    assert len(table_of(transformed / "scores.csv")["id"]) == 200


BAD_MODELS = [
    ("nowhere_to_be_found:create", "No module named 'nowhere_to_be_found'. Install the package, or run in the folder"),
    ("made_with_transform.py:nothing", "has no function 'nothing'; it has create, half, with_transform"),
    ("made_with_transform:half", "takes the arguments picture: expected a function that takes none"),
    ("made_wrong:create", "importing made_wrong failed with SyntaxError: "),
    ("made_with_transform:no_model", "returned int: expected an nn.Module, or an (nn.Module, transform) pair"),
    ("made_with_transform:breaks", "failed with KeyError: 'no such layer'"),
    ("made_with_transform:with_bad_transform", "transform returned Image: expected a tensor"),
    ("made_with_transform:TwoOutputs", "the model fails on a batch of shape (128, 3, 4, 4): the model returned tuple"),
    ("made_with_transform:Bent", "On the command line: pnml fit --head-layer NAME"),
]


@pytest.mark.parametrize(("model", "message"), BAD_MODELS)
def test_bad_models_are_refused_with_the_reason(model: str, message: str, transformed: Path) -> None:
    assert message in fails("fit", "--model", model, "--images", "train", "--out", "other.safetensors")
    assert not (transformed / "other.safetensors").exists()


def test_out_of_memory_errors_are_named_as_such(transformed: Path) -> None:
    model = "made_with_transform:OutOfMemory"
    said = fails("fit", "--model", model, "--images", "train", "--out", "other.safetensors")
    assert "error: out of memory: " in said
    assert "give a smaller --batch-size" in said


@pytest.mark.filterwarnings("default::pnml.pytorch.layers.LayersNotFoundWarning")
def test_head_layer_selects_the_last_layer(transformed: Path) -> None:
    torch.manual_seed(0)
    layer = nn.Linear(48, 3)
    save_file({f"fc.{name}": value for name, value in layer.state_dict().items()}, transformed / "fc.safetensors")
    model = ("--model", "made_with_transform:NoHead", "--weights", "fc.safetensors")
    words = ("fit", *model, "--images", "train", "--out", "detector.safetensors")
    result = run(*words, "--head-layer", "fc")
    assert "fitted on 200 rows" in result.stdout
    assert result.stderr.count("The embeddings alone are watched, as with layers='last'") == 1
    succeeds("score", "detector.safetensors", *model, "--images", "new", "--out", "scores.csv")
    images = torch.from_numpy(pixels_of(transformed / "new").transpose(0, 3, 1, 2).reshape(20, -1) / 255).float()
    own = layer(images).softmax(dim=1).max(dim=1).values.detach()  # the model doubles what its head puts out
    np.testing.assert_allclose(table_of(transformed / "scores.csv")["probability"], own, rtol=1e-4)
    assert "head 'other' is no module of the model" in fails(*words, "--head-layer", "other")


def test_images_of_the_wrong_size_print_the_error_of_the_model(folder: Path) -> None:
    said = fails("fit", *MODEL, "--images", "train", "--size", 5, "--out", "other.safetensors")
    assert "the model fails on a batch of shape (128, 3, 5, 5): mat1 and mat2" in said


def test_detector_of_other_weights_is_refused_unless_told(folder: Path) -> None:
    path = fitted_on_images(folder)
    before = path.read_bytes()
    state = network().state_dict()
    save_file({**state, "3.weight": state["3.weight"] + 1}, folder / "head.safetensors")
    head = ("--model", "made_here:create", "--weights", "head.safetensors", "--images", "new", *PREPARED)
    assert "was fitted for another last layer" in fails("calibrate", path, *head)
    save_file({**state, "1.weight": 1.01 * state["1.weight"]}, folder / "other.safetensors")
    model = ("--model", "made_here:create", "--weights", "other.safetensors", "--images", "new", *PREPARED)
    score, graph = ["score", path, "--out", "scores.csv"], ("--example-shape", "3,4,4", "--out", "graph.onnx")
    for words in (["calibrate", path, *model], [*score, *model], ["export", path, *model[:4], *graph]):
        assert "was fitted with other weights than this model has" in fails(*words)
        assert "--no-check-model" in fails(*words)
    assert path.read_bytes() == before
    assert not (folder / "scores.csv.parts").exists()
    succeeds(*score, *model, "--no-check-model")
    assert len(table_of(folder / "scores.csv")["regret"]) == 20


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda state: state.pop("1.weight"), "1 tensors are missing (1.weight)"),
        (lambda state: state.update(extra=torch.zeros(1)), "1 tensors are not the model's (extra)"),
        (lambda state: state.update({"1.bias": torch.zeros(2)}), "does not fit the model: Error"),
    ],
)
def test_weights_that_do_not_fit_are_refused(change: Any, message: str, folder: Path) -> None:
    state = network().state_dict()
    change(state)
    save_file(state, folder / "model.safetensors")
    assert message in fails("fit", *MODEL, "--images", "train", "--out", "other.safetensors")


@pytest.mark.filterwarnings("default::pnml.cli.fit.EmptyClassesWarning")
def test_forgotten_weights_are_noticed_by_classes_that_are_never_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    weight = np.eye(3, 8)
    for name, bias in {"trained": np.zeros(3), "untrained": np.array([0, 100, 0])}.items():
        np.savez(f"{name}.npz", weight=weight, bias=bias)
    for name, count in {"many": 200, "few": 20}.items():
        np.save(f"{name}.npy", rng.normal(size=(count, 8)).astype(np.float32))

    def said(rows: str, head: str) -> str:
        done = run("fit", "--embeddings", f"{rows}.npy", "--head", f"{head}.npz", "--out", "d.safetensors")
        assert done.exit_code == 0
        return done.stderr

    expected = "warning: no training sample is predicted to be of class 0, 2 (2 of 3 classes): are these all training"
    assert expected in said("many", "untrained")
    assert "predicted" not in said("many", "trained")
    assert "predicted" not in said("few", "untrained")  # as in a first try on a handful of samples
