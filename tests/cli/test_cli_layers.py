"""Earlier layers on the command line: chosen by fit, read from the detector by the other commands, shown by inspect."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from pnml import Detector, guard

from .cli_files import (
    FEATURES,
    MODEL,
    PREPARED,
    fails,
    make_files,
    network,
    pixels_of,
    prepared,
    succeeds,
    table_of,
)

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from .cli_files import Files

LAYERS = ("stem", "block.1")


@dataclass(frozen=True)
class Layered:
    """Files of embeddings with the features of two layers, and what is in them."""

    files: Files
    features: dict[str, dict[str, NDArray[np.float32]]]

    def __truediv__(self, name: str) -> Path:
        return self.files / name

    def fit(self, *words: object) -> Path:
        path = self / "detector.safetensors"
        succeeds("fit", "--embeddings", self / "train.npz", "--head", self / "head.npz", "--out", path, *words)
        return path

    def of(self, name: str, *layers: str) -> list[NDArray[np.float32]]:
        return [self.features[name][layer] for layer in layers]


@pytest.fixture
def layered(tmp_path: Path) -> Layered:
    files, rng = make_files(tmp_path), np.random.default_rng(1)
    features: dict[str, dict[str, NDArray[np.float32]]] = {}
    for name, rows in {"train": files.train, "held": files.held, "new": files.new}.items():
        features[name] = {
            layer: (2 + 0.3 * rng.normal(size=(len(rows), width))).astype(np.float32)
            for layer, width in zip(LAYERS, (6, 4), strict=True)
        }
        if name == "new":
            features[name]["stem"][:10] *= np.array([1, -1, 1, -1, 1, -1], dtype=np.float32)  # unlike the training rows
        arrays: dict[str, Any] = {f"features.{layer}": held for layer, held in features[name].items()}
        np.savez(tmp_path / f"{name}.npz", embedding=rows, **arrays)
    return Layered(files, features)


@pytest.mark.parametrize(
    ("words", "chosen"),
    [
        ((), LAYERS),
        (("--layers", "block.1, stem"), ("block.1", "stem")),
        (("--layers", "last"), ()),
        (("--embedding-scale", "paper"), ()),
    ],
)
def test_fit_takes_the_layers_that_are_asked_for(
    words: tuple[str, ...], chosen: tuple[str, ...], layered: Layered
) -> None:
    scale: Any = "paper" if "paper" in words else "auto"
    found = Detector.load(layered.fit(*words))
    assert found.layer_names == chosen
    expected = Detector(layered.files.weight, layered.files.bias, embedding_scale=scale)
    expected.fit(layered.files.train, features=layered.of("train", *chosen))
    new = layered.files.new.astype(np.float64)
    features = [rows.astype(np.float64) for rows in layered.of("new", *chosen)]
    np.testing.assert_allclose(
        found.score(new, features=features), expected.score(new, features=features), rtol=1e-5, atol=1e-9
    )


def test_calibrate_and_score_read_the_layers_of_the_detector(layered: Layered) -> None:
    path = layered.fit()
    succeeds("calibrate", path, "--embeddings", layered / "held.npz", "--false-alarm-rate", "0.1")
    detector = Detector.load(path)
    scores = detector.score(layered.files.held, features=layered.of("held", *LAYERS))
    assert detector.threshold is not None
    assert np.mean(scores > detector.threshold.value) <= 0.1
    succeeds("score", path, "--embeddings", layered / "new.npz", "--out", layered / "scores.parquet")
    table = table_of(layered / "scores.parquet")
    assert [*table][-3:] == ["p_value", "is_ood", "strangest_layer"]
    assert table["strangest_layer"][:10] == ["stem"] * 10
    assert all(table["is_ood"][:10])
    strangest = detector(layered.files.new, features=layered.of("new", *LAYERS)).strangest_layer
    assert table["strangest_layer"] == [detector.block_names[number] for number in np.asarray(strangest)]


def test_inspect_shows_every_layer(layered: Layered) -> None:
    path = layered.fit()
    said = succeeds("inspect", path)
    for name, width in {"embedding": FEATURES, "stem": 6, "block.1": 4, "lengths": 2}.items():
        assert re.search(rf" {re.escape(name)} +{width}$", said, re.MULTILINE), said
    words = "fit", "--embeddings", layered / "train.npz", "--head", layered / "head.npz", "--out", path
    assert "layers    stem (6), block.1 (4)" in succeeds(*words)
    assert "layers    none: the embedding alone is watched" in succeeds(*words, "--layers", "last")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--layers", "stem,block2"), "no features of the layer 'block2'; it has those of stem, block.1"),
        (("--layers", "stem,"), "'stem,' is not auto, last, or different names"),
        (("--layers", "stem", "--embedding-scale", "paper"), "layers need --embedding-scale auto, got paper"),
    ],
)
def test_layers_that_cannot_be_fitted_are_refused(words: tuple[str, ...], message: str, layered: Layered) -> None:
    out = layered / "other.safetensors"
    said = fails("fit", "--embeddings", layered / "train.npz", "--head", layered / "head.npz", "--out", out, *words)
    assert message in said
    assert not out.exists()


def test_samples_without_the_features_of_the_detector_are_refused(layered: Layered) -> None:
    path = layered.fit()
    for words in (["calibrate", path], ["score", path, "--out", layered / "scores.csv"]):
        said = fails(*words, "--embeddings", layered / "new.npy")
        assert "new.npy has no features of the layer 'stem'; it has those of no layer" in said
        held = layered.features["new"].items()
        wider: dict[str, Any] = {f"features.{name}": np.repeat(rows, 2, axis=1) for name, rows in held}
        np.savez(layered / "wider.npz", embedding=layered.files.new, **wider)
        said = fails(*words, "--embeddings", layered / "wider.npz")
        assert "wider.npz has 12 features of the layer 'stem', where 6 were fitted: they are" in said


def test_images_are_scored_by_the_layers_of_the_guard(folder: Path) -> None:
    words = "fit", *MODEL, "--images", "train", *PREPARED
    for layers, names in (("auto", ("1",)), ("last", ()), ("2", ("2",))):
        succeeds(*words, "--layers", layers, "--out", f"{layers}.safetensors")
        assert Detector.load(f"{layers}.safetensors").layer_names == names
    succeeds("score", "auto.safetensors", *MODEL, "--images", "new", *PREPARED, "--out", "scores.csv", "--by-layer")
    table = table_of(folder / "scores.csv")
    guarded = guard(network()).fit([prepared(pixels_of(folder / "train"))], progress=False)
    shares = guarded(prepared(pixels_of(folder / "new"))).leverage_by_layer
    found = np.transpose([table[f"leverage.{name}"] for name in ("embedding", "1", "lengths")])
    np.testing.assert_allclose(found, shares, rtol=1e-2, atol=1e-4)
    assert "nowhere" in fails(*words, "--layers", "nowhere", "--out", "other.safetensors")
    said = fails(*words, "--layers", "3", "--out", "other.safetensors")  # the head, which is no earlier layer
    assert said.endswith("On the command line: pnml fit --layers last")
