"""``pnml export``: the graph computes what ``pnml score`` computes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import onnxruntime
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import pnml.pytorch.export
from pnml import Detector

from .cli_files import CLASSES, FEATURES, MODULE, SIDE, fails, make_images, succeeds, table_of

if TYPE_CHECKING:
    from pathlib import Path

MODEL = ("--model", "made_for_export:create", "--weights", "model.safetensors")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "made_for_export.py").write_text(MODULE)
    torch.manual_seed(0)
    layers = nn.Linear(3 * SIDE * SIDE, FEATURES), nn.Tanh(), nn.Linear(FEATURES, CLASSES)
    save_file(nn.Sequential(nn.Flatten(), *layers).state_dict(), tmp_path / "model.safetensors")
    make_images(tmp_path / "train", 100)
    succeeds("fit", *MODEL, "--images", "train", "--out", "detector.safetensors")
    return tmp_path


@pytest.mark.skipif(torch.__version__ < "2.11", reason="ONNX is tested from PyTorch 2.11 on; 2.6 cannot export it")
def test_graph_computes_what_score_computes(folder: Path) -> None:
    succeeds("calibrate", "detector.safetensors", *MODEL, "--images", "train", "--leave-one-out")
    words = ("export", "detector.safetensors", *MODEL, "--example-shape", f"3,{SIDE},{SIDE}")
    said = succeeds(*words, "--out", "out/graph.onnx")
    assert f"input (batch, 3, {SIDE}, {SIDE}) to logits, probabilities, regret, p_value, is_ood" in said
    pixels = make_images(folder / "new", 5, seed=1)
    succeeds("score", "detector.safetensors", *MODEL, "--images", "new", "--out", "scores.csv")
    table = table_of(folder / "scores.csv")
    session = onnxruntime.InferenceSession(folder / "out" / "graph.onnx")
    images = (pixels.transpose(0, 3, 1, 2) / 255).astype(np.float32)
    outputs = dict(zip([o.name for o in session.get_outputs()], session.run(None, {"input": images}), strict=True))
    assert outputs["logits"].argmax(axis=1).tolist() == table["prediction"]
    for name in ("regret", "p_value", "is_ood"):
        np.testing.assert_allclose(outputs[name], table[name], atol=1e-5)


def test_export_without_a_threshold_prints_a_note(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shapes = []
    monkeypatch.setattr(pnml.pytorch.export, "export_onnx", lambda guard, example, path: shapes.append(example.shape))
    said = succeeds("export", "detector.safetensors", *MODEL, "--example-shape", "3,4,4", "--out", "graph.onnx")
    assert "to logits, probabilities, regret\nno threshold is set, so the graph has no p_value and is_ood" in said
    assert [tuple(shape[1:]) for shape in shapes] == [(3, 4, 4)]
    words = ("export", "detector.safetensors", *MODEL, "--example-shape", "3,4,4", "--out", "graph.onnx", "--json")
    found = json.loads(succeeds(*words))
    assert (found["graph"], found["input_shape"], found["threshold"]) == ("graph.onnx", [3, 4, 4], None)
    assert found["preparation"] == Detector.load("detector.safetensors").preparation


def test_model_that_cannot_be_exported_is_refused(folder: Path) -> None:
    words = ("export", "detector.safetensors", *MODEL, "--out", "graph.onnx")
    assert "the model cannot be exported with inputs of shape (7,)" in fails(*words, "--example-shape", "7")
    assert not (folder / "graph.onnx").exists()
