from __future__ import annotations

import hashlib
import runpy
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch

from pnml_bench import zoo
from pnml_bench.zoo.densenet import DenseNet

LAYOUTS = Path(__file__).parent / "data" / "layouts.py"


@pytest.fixture(scope="session")
def made_images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every image set in its publisher's layout, twelve images each (sixty in CIFAR-10's training set)."""
    root = tmp_path_factory.mktemp("images")
    runpy.run_path(str(LAYOUTS))["make_all"](root, 12)
    return root


@pytest.fixture(scope="session")
def made_weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Random weights of small DenseNets in place of every published checkpoint."""
    folder = tmp_path_factory.mktemp("weights")
    files = {}
    with torch.random.fork_rng(), pytest.MonkeyPatch.context() as patch:
        torch.manual_seed(0)
        patch.setitem(zoo.ARCHITECTURES, "densenet-bc-100", partial(DenseNet, depth=1, growth=4))
        for name, checkpoint in zoo.CHECKPOINTS.items():
            files[name] = folder / f"{name}.safetensors"
            zoo.save(zoo.create("densenet-bc-100", checkpoint.num_classes), files[name])
    return files


@pytest.fixture
def small_world(
    made_images: Path, made_weights: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """The made images and weights instead of the published ones, and nothing else; gives a folder for results."""
    monkeypatch.setenv("PNML_DATA", str(made_images))
    monkeypatch.setenv("PNML_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PNML_WEIGHTS", str(next(iter(made_weights.values())).parent))
    for name in {checkpoint.architecture for checkpoint in zoo.CHECKPOINTS.values()}:
        monkeypatch.setitem(zoo.ARCHITECTURES, name, partial(DenseNet, depth=1, growth=4))
    for name, file in made_weights.items():
        digest = hashlib.sha256(file.read_bytes()).hexdigest()
        monkeypatch.setitem(zoo.CHECKPOINTS, name, replace(zoo.CHECKPOINTS[name], filename=file.name, sha256=digest))
    return tmp_path / "results"
