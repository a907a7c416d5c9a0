"""The picture of the guide to layers: which depth of the demo's network gives images of different kinds away.

Everything is part of the package or of scikit-learn and scikit-image; nothing is downloaded. It takes seconds.

Example: python -m studies.pictures.layers --out out/figures
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from PIL import Image, ImageFilter

import pnml
from pnml.demo import assets
from pnml.demo.images import Images, ood_images
from pnml.demo.network import load_network
from pnml.demo.scoring import score
from pnml_bench.figures import new_figure, save

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from pnml.report import ScoredSet

SEED = 0
NOISE = 0.1  # standard deviation, of the range of a pixel
BLUR = 1.0  # standard deviation, in pixels
TILES = 4  # a side
EARLY, LATE, LENGTHS, EMBEDDING = "#c6dbef", "#08306b", "#9a9a9a", "#e6862c"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("out/figures"))
    args = parser.parse_args()
    network, _ = load_network(assets.verified_path(assets.WEIGHTS))
    guard = pnml.guard(network).load(assets.verified_path(assets.DETECTOR))
    known = assets.ind_images()
    groups = [[known], altered(known), ood_images()]
    scored = [[score(guard, network, images) for images in group] for group in groups]
    for path in save(draw(scored, guard.fitted()), args.out, "layers"):
        print(path)


def altered(known: Images) -> list[Images]:
    """Return the known images in five other forms."""
    rng, pixels = np.random.default_rng(SEED), known.pixels
    noisy = np.clip(np.round(pixels + rng.normal(0, 255 * NOISE, pixels.shape)), 0, 255).astype(np.uint8)
    blurred = np.stack([np.asarray(Image.fromarray(x).filter(ImageFilter.GaussianBlur(BLUR))) for x in pixels])
    kinds = {
        "upside down": np.ascontiguousarray(pixels[:, ::-1]),
        "red and blue swapped": np.ascontiguousarray(pixels[..., ::-1]),
        "tiles in another order": reordered(pixels, rng.permutation(TILES**2)),
        "blurred": blurred,
        "with some noise": noisy,
    }
    return [Images(f"The same, {name}", x, known.captions) for name, x in kinds.items()]


def reordered(pixels: NDArray[np.uint8], order: NDArray[np.int64]) -> NDArray[np.uint8]:
    """Return images (n, H, W, 3) with their square tiles in another order."""
    count, side = len(pixels), pixels.shape[1] // TILES
    tiles = pixels.reshape(count, TILES, side, TILES, side, 3).swapaxes(2, 3).reshape(count, TILES**2, side, side, 3)
    grid = tiles[:, order].reshape(count, TILES, TILES, side, side, 3).swapaxes(2, 3)
    return np.ascontiguousarray(grid.reshape(pixels.shape))


def draw(groups: list[list[ScoredSet]], detector: pnml.Detector) -> Figure:
    """Draw a bar for each kind of images: the mean shares of the layers in their leverage, the first layer first."""
    figure = new_figure(8.4, 4.7)
    axes = figure.subplots()
    names = (*detector.watched_names, "embedding")
    colours = [*blues(len(detector.layer_names)), LENGTHS, EMBEDDING]
    place = 0.0
    places: list[float] = []
    labels: list[str] = []
    threshold = detector.threshold
    assert threshold is not None  # noqa: S101 - the packaged detector is calibrated
    for group in groups:
        for kind in group:
            leverage = np.asarray(kind.leverage)
            shares = 100 * (leverage / leverage.sum(axis=1, keepdims=True)).mean(axis=0)
            start = 0.0
            for name, share, colour in zip(names, np.roll(shares, -1), colours, strict=True):
                axes.barh(place, share, left=start, height=0.72, color=colour, label=None if places else name)
                start += share
            axes.text(101.5, place, f"{100 * threshold.is_ood(kind.regret).mean():.0f} %", va="center", fontsize=9)
            places.append(place)
            labels.append(kind.name)
            place += 1
        place += 0.5
    axes.text(101.5, -0.75, "flagged", va="center", fontsize=9)
    axes.set_yticks(places, labels)
    axes.set(xlabel="share in the leverage, mean over the images (%)", xlim=(0, 100), ylim=(place - 0.9, -0.6))
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)
    figure.legend(
        loc="outside lower center", ncols=len(names), frameon=False, fontsize=8, handlelength=1, columnspacing=1.2
    )
    return figure


def blues(count: int) -> list[tuple[float, ...]]:
    """Return colours from light to dark."""
    ends = [np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]) for colour in (EARLY, LATE)]
    return [tuple(ends[0] + (ends[1] - ends[0]) * share) for share in np.linspace(0, 1, count)]


if __name__ == "__main__":
    main()
