from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from pnml_bench.training.augment import draw_augmentation, shift_and_flip
from pnml_bench.training.outliers import (
    TRANSFORMATIONS,
    Outliers,
    add_noise,
    rotate_and_recolour,
    shuffle_patches,
    transform,
)


def images(count: int, *, side: int = 8, top: int = 256) -> Tensor:
    return torch.from_numpy(np.random.default_rng(0).integers(0, top, (count, side, side, 3), dtype=np.uint8))


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def patches(image: Tensor) -> list[bytes]:
    side = image.shape[0] // 4
    cut = [image[i * side : (i + 1) * side, j * side : (j + 1) * side] for i in range(4) for j in range(4)]
    return [patch.numpy().tobytes() for patch in cut]


def test_shuffle_patches_permutes_patches() -> None:
    before = images(20)
    after = shuffle_patches(before, generator())
    orders = set()
    for old, new in zip(before, after, strict=True):
        assert sorted(patches(old)) == sorted(patches(new))
        orders.add(tuple(patches(old).index(patch) for patch in patches(new)))
    assert len(orders) == 20


def test_add_noise_has_expected_standard_deviation() -> None:
    grey = torch.full((50, 8, 8, 3), 127, dtype=torch.uint8)
    noise = add_noise(grey, generator()).numpy().astype(float) - 127
    below, above = np.quantile(noise, [0.25, 0.75])  # unaffected by clipping
    assert (above - below) / 1.349 == pytest.approx(96, rel=0.05)
    assert noise.mean() == pytest.approx(0, abs=3)


def test_rotate_and_recolour_rotates_and_scales_channels() -> None:
    before = images(30, top=160)
    after = rotate_and_recolour(before, generator()).numpy().astype(float)
    factors = []
    for number, image in enumerate(before.numpy()):
        rotated = np.rot90(image, 1 + number % 3).astype(float)
        factor = after[number].sum(axis=(0, 1)) / rotated.sum(axis=(0, 1))
        np.testing.assert_allclose(after[number], rotated * factor, atol=1.5)
        factors.append(factor)
    assert 0.45 < np.min(factors) < 0.6
    assert 1.4 < np.max(factors) < 1.55


def test_transform_alternates_transformations() -> None:
    before = images(8)
    after = transform(before, generator(), TRANSFORMATIONS)
    assert sorted(patches(after[0])) == sorted(patches(before[0]))
    assert (after[2::4] == 255 - before[2::4]).all()
    assert all((after[number] != before[number]).any() for number in range(8))
    assert (before == images(8)).all()


def test_draw_alternates_sources() -> None:
    sevens, nines = torch.full((5, 8, 8, 3), 7, dtype=torch.uint8), torch.full((2, 8, 8, 3), 9, dtype=torch.uint8)
    drawn = Outliers([sevens, nines, None], images(6), digits=False).draw(31, generator())
    assert drawn.shape == (31, 8, 8, 3)
    assert (drawn[0::3] == 7).all()
    assert (drawn[1::3] == 9).all()
    assert len(torch.unique(drawn[2::3])) > 100


def test_outliers_have_the_borders_of_training_images() -> None:
    white = torch.full((4, 8, 8, 3), 255, dtype=torch.uint8)
    augmentation = draw_augmentation(4000, flip=True, generator=generator())
    trained_on = shift_and_flip(white, torch.zeros(4000, dtype=torch.int64), augmentation, black=True)
    grey = white // 2
    sources = {"another set": grey, "transformed": None}
    for name, source in sources.items():
        drawn = Outliers([source], grey, digits=False, black_border=True).draw(4000, generator())
        is_black = (drawn == 0).all(dim=3).double().mean(dim=0)  # how often a pixel is
        expected = (trained_on == 0).all(dim=3).double().mean(dim=0)
        assert (is_black - expected).abs().max() < 0.05, name


@pytest.mark.parametrize(
    ("source", "side", "message"),
    [(images(1, side=12), 8, "outliers of 8×8 pixels, got 12×12"), (None, 10, "divisible by 4, got 10×10")],
)
def test_image_sizes_that_do_not_match_raise(source: Tensor | None, side: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Outliers([source], images(1, side=side), digits=False)
