"""A detector's file keeps how images were prepared: other commands prepare them so, and refuse what contradicts it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from PIL import Image

from pnml import Detector, guard

from .cli_files import (
    MODEL,
    MODULE,
    PREPARED,
    SIDE,
    fails,
    fitted_on_images,
    network,
    pixels_of,
    prepared,
    run,
    succeeds,
)
from .cli_files import table_of as table

if TYPE_CHECKING:
    from pathlib import Path

HELD = {
    "channels": "RGB",
    "resize": "bilinear, antialiased",
    "size": None,
    "mean": [0.4, 0.5, 0.6],
    "std": [0.2, 0.3, 0.4],
    "shape": [SIDE, SIDE],
}
NEW = ("--images", "new", "--out", "scores.csv")


def test_score_and_calibrate_prepare_images_as_fit_did(folder: Path) -> None:
    path = fitted_on_images(folder)
    guarded = guard(network()).fit([prepared(pixels_of(folder / "train"))], progress=False)
    threshold = guarded.calibrate([prepared(pixels_of(folder / "held"))], progress=False)
    succeeds("calibrate", path, *MODEL, "--images", "held")
    found = Detector.load(path)
    assert found.preparation == HELD
    assert found.threshold is not None
    assert found.threshold.value == pytest.approx(threshold.value, rel=1e-3)
    succeeds("score", path, *MODEL, *NEW)
    regret = guarded(prepared(pixels_of(folder / "new"))).regret
    np.testing.assert_allclose(table(folder / "scores.csv")["regret"], regret, rtol=1e-3)


OTHER = [
    ("--mean", "0.5", "mean 0.4,0.5,0.6, got mean 0.5"),
    ("--std", "0.2,0.3,0.5", "std 0.2,0.3,0.4, got std 0.2,0.3,0.5"),
    ("--size", "5", "size 4×4, got size 5×5"),
]


@pytest.mark.parametrize(("option", "value", "both"), OTHER)
def test_another_preparation_is_refused_with_both_values(option: str, value: str, both: str, folder: Path) -> None:
    path = fitted_on_images(folder)
    before = path.read_bytes()
    for words in (["score", path, *MODEL, *NEW], ["calibrate", path, *MODEL, "--images", "held"]):
        said = fails(*words, option, value)
        assert f"fitted on images prepared with {both}: leave it out to prepare images as then, or fit again" in said
    assert path.read_bytes() == before
    assert not list(folder.glob("scores.csv*"))
    succeeds("score", path, *MODEL, *NEW, *PREPARED, "--size", SIDE)  # the same values, spelled out


@pytest.mark.filterwarnings("ignore::pnml.cli.fit.EmptyClassesWarning")  # the network is not trained
def test_size_of_fit_is_used(folder: Path) -> None:
    for file in (folder / "train").iterdir():
        Image.open(file).resize((6, 6)).save(file)
    succeeds("fit", *MODEL, "--images", "train", "--size", SIDE, "--mean", "0.5", "--out", "detector.safetensors")
    Image.new("RGB", (9, 7)).save(folder / "new" / "odd.png")
    succeeds("score", "detector.safetensors", *MODEL, *NEW)
    assert len(table(folder / "scores.csv")["id"]) == 21
    succeeds("score", "detector.safetensors", *MODEL, *NEW, "--mean", "0.5,0.5,0.5")
    assert "size 4×4, got size 6×6" in fails("score", "detector.safetensors", *MODEL, *NEW, "--size", 6)
    said = succeeds("inspect", "detector.safetensors")
    assert "images     RGB, resized to 4×4 pixels, scaled to [0, 1], mean 0.5, std 1\n" in said


POOLED = """
import torch
from torch import nn

def create():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 8, 1), nn.Tanh(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 3)]
    return nn.Sequential(*layers)
"""


@pytest.mark.filterwarnings("ignore::pnml.cli.fit.EmptyClassesWarning")  # the network is not trained
@pytest.mark.filterwarnings("default::pnml.io.preparation_record.PreparationWarning")
def test_images_of_another_size_that_is_kept_give_a_warning(folder: Path) -> None:
    (folder / "made_pooled.py").write_text(POOLED)
    model = ("--model", "made_pooled:create")
    succeeds("fit", *model, "--images", "train", "--out", "detector.safetensors")
    assert "warning" not in run("score", "detector.safetensors", *model, *NEW).stderr
    for file in (folder / "new").iterdir():
        Image.open(file).resize((8, 8)).save(file)
    result = run("score", "detector.safetensors", *model, *NEW)
    assert result.exit_code == 0
    assert result.stderr.count("warning: the first image has 8×8 pixels") == 1
    assert "that of the training set 4×4" in result.stderr


TRANSFORM = """
import numpy as np, torch

class Scaled:
    def __init__(self, by):
        self.by = by
    def __call__(self, image):
        return torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / self.by
    def __repr__(self):
        return f"Scaled({self.by}) at 0x7f00"

def with_transform():
    return create(), Scaled(255)

def with_another():
    return create(), Scaled(128)
"""


def test_transform_of_the_factory_has_to_be_that_of_fit(folder: Path) -> None:
    (folder / "made_with_scales.py").write_text(MODULE + TRANSFORM)
    weights, path = ("--weights", "model.safetensors"), folder / "detector.safetensors"

    def model(name: str) -> tuple[str, ...]:
        return ("--model", f"made_with_scales:{name}", *weights)

    succeeds("fit", *model("with_transform"), "--images", "train", "--out", path)
    assert Detector.load(path).preparation == {"channels": "RGB", "transform": "Scaled(255)"}
    assert "images     RGB, then the transform of the model's factory: Scaled(255)\n" in succeeds("inspect", path)
    succeeds("score", path, *model("with_transform"), *NEW)
    assert "the transform Scaled(255), got the transform Scaled(128): let" in fails(
        "score", path, *model("with_another"), *NEW
    )
    assert "the transform Scaled(255), got no transform of the factory" in fails("score", path, *model("create"), *NEW)
    plain = fitted_on_images(folder)
    assert "with no transform of the factory, got the transform" in fails("score", plain, *model("with_another"), *NEW)


@pytest.mark.filterwarnings("default::pnml.io.preparation_record.PreparationWarning")
def test_detector_of_a_guard_takes_options_and_warns_without(folder: Path) -> None:
    guarded = guard(network()).fit([prepared(pixels_of(folder / "train"))], progress=False)
    guarded.save("guard.safetensors")
    assert "images  " not in succeeds("inspect", "guard.safetensors")
    assert "warning" not in run("score", "guard.safetensors", *MODEL, *NEW, *PREPARED).stderr
    regret = guarded(prepared(pixels_of(folder / "new"))).regret
    np.testing.assert_allclose(table(folder / "scores.csv")["regret"], regret, rtol=1e-3)
    said = run("score", "guard.safetensors", *MODEL, *NEW, "--restart").stderr
    assert "does not say how images were prepared: give --size, --mean and --std as for its fit" in said


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_export_takes_the_shape_of_fit_and_writes_the_preparation(folder: Path) -> None:
    words = ("export", "detector.safetensors", *MODEL, "--out", "graph.onnx")
    succeeds("fit", *MODEL, "--images", "train", *PREPARED, "--size", SIDE, "--out", "detector.safetensors")
    assert f"of shape (3, {SIDE}, {SIDE}), got --example-shape 3,5,5: leave it" in fails(
        *words, "--example-shape", "3,5,5"
    )
    said = succeeds(*words)
    assert f"input (batch, 3, {SIDE}, {SIDE})" in said
    assert "RGB, resized to 4×4 pixels, scaled to [0, 1], mean 0.4,0.5,0.6, std 0.2,0.3,0.4" in said
    metadata: dict[str, Any] = {entry.key: entry.value for entry in onnx.load("graph.onnx").metadata_props}
    assert json.loads(metadata["pnml.preparation"]) == {key: HELD[key] for key in HELD if key != "shape"} | {
        "size": SIDE
    }
    guard(network()).fit([prepared(pixels_of(folder / "train"))], progress=False).save("detector.safetensors")
    assert "does not know the shape of its inputs" in fails(*words)
