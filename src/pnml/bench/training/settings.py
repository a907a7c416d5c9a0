"""What makes a training the same training: it is written into checkpoints, and compared before going on."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Literal, TypeAlias

from pnml.bench.training.outliers import TRANSFORMED

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from pnml.bench.data import ImageSet
    from pnml.bench.training.recipes import Recipe
    from pnml.bench.zoo import Network

OutlierSet: TypeAlias = "ImageSet | Literal['transformed']"
Settings = dict[str, str]


def check(recipe: Recipe, out: Path, seed: int, start: Network | None, outliers: Sequence[OutlierSet]) -> None:
    """Raise ValueError if the arguments of a training do not fit together."""
    if out.suffix != ".safetensors":
        raise ValueError(f"out must be a .safetensors file, got {out}")
    if seed < 0:
        raise ValueError(f"seed must be at least 0, got {seed}")
    if start is not None and (start.architecture, start.head.out_features) != (recipe.model, recipe.num_classes):
        raise ValueError(
            f"the recipe is for a {recipe.model} with {recipe.num_classes} classes, but the network to start from is a "
            f"{start.architecture} with {start.head.out_features}"
        )
    for one in outliers:
        if isinstance(one, str) and one != TRANSFORMED:
            raise ValueError(
                f"outliers are image sets or {TRANSFORMED!r}, got {one!r}: load it with pnml.bench.data.load first"
            )
    if recipe.penalty is None:
        if outliers:
            raise ValueError("this recipe uses no outliers: leave them away, or take a recipe with tune=...")
    elif start is None or not outliers:
        raise ValueError(
            f"{recipe.penalty.name} tuning needs a trained network, start=..., and outliers=[...]: image sets, or "
            f"{TRANSFORMED!r} for training images made strange"
        )


def describe(
    recipe: Recipe,
    train_set: ImageSet,
    test_set: ImageSet,
    *,
    seed: int,
    start: Network | None,
    outliers: Sequence[OutlierSet],
) -> Settings:
    """Give what identifies a training, as metadata of its files."""
    names = [one if isinstance(one, str) else f"{one.name} ({len(one)} images)" for one in outliers]
    return {
        "name": recipe.name,
        "dataset": recipe.dataset,
        "recipe": recipe.to_json(),
        "epochs": str(recipe.epochs),
        "seed": str(seed),
        "train_images": str(len(train_set)),
        "test_images": str(len(test_set)),
        "outliers": ", ".join(names) or "none",
        "start": "fresh weights" if start is None else f"weights with sha256 {_digest(start)}",
    }


def refuse_others(path: Path, metadata: Settings, settings: Settings) -> None:
    """Raise ValueError if a file comes from another training: neither to go on nor to overwrite it would be right."""
    differing = [
        f"{key} is {metadata.get(key, 'not given')} there, {value} here"
        for key, value in settings.items()
        if metadata.get(key) != value
    ]
    if differing:
        raise ValueError(
            f"{path} is from another training ({'; '.join(differing)}): choose another out, or move that file away"
        )


def _digest(network: Network) -> str:
    sha256 = hashlib.sha256()
    for tensor in network.state_dict().values():
        sha256.update(tensor.cpu().contiguous().numpy().tobytes())
    return sha256.hexdigest()
