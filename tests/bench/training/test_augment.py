"""Compare shifts and flips with NumPy's padding of one image at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from pnml_bench.training.augment import Augmentation, draw_augmentation, shift_and_flip

SHIFTS = st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4), st.booleans()), min_size=1, max_size=5)


@settings(max_examples=50, deadline=None)
@given(plan=SHIFTS, height=st.integers(5, 9), width=st.integers(5, 9), data=st.data())
def test_shift_and_flip_equals_padding_cropping_and_flipping(
    plan: list[tuple[int, int, bool]], height: int, width: int, data: st.DataObject
) -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, height, width, 3), dtype=np.uint8)
    rows = [data.draw(st.integers(0, 2)) for _ in plan]
    augmentation = Augmentation(torch.tensor([shift[:2] for shift in plan]), torch.tensor([shift[2] for shift in plan]))
    augmented = shift_and_flip(torch.from_numpy(images), torch.tensor(rows), augmentation).numpy()
    assert augmented.dtype == np.uint8
    for result, row, (down, right, flip) in zip(augmented, rows, plan, strict=True):
        padded = np.pad(images[row], ((4, 4), (4, 4), (0, 0)), mode="reflect")
        expected = padded[4 - down : 4 - down + height, 4 - right : 4 - right + width]
        np.testing.assert_array_equal(result, expected[:, ::-1] if flip else expected)


def test_shifts_and_flips_are_uniform() -> None:
    shifts, flips = draw_augmentation(9000, flip=True, generator=torch.Generator().manual_seed(0))
    for axis in range(2):
        values, counts = np.unique(shifts[:, axis].numpy(), return_counts=True)
        assert values.tolist() == list(range(-4, 5))
        assert counts == pytest.approx(1000, rel=0.2)
    assert float(flips.float().mean()) == pytest.approx(0.5, abs=0.03)


def test_black_borders_are_those_of_padding_with_zeros() -> None:
    images = torch.randint(1, 256, (6, 8, 8, 3), dtype=torch.uint8, generator=torch.Generator().manual_seed(3))
    augmentation = draw_augmentation(6, max_shift=4, flip=True, generator=torch.Generator().manual_seed(4))
    rows = torch.tensor([5, 0, 1, 1, 2, 4])
    found = shift_and_flip(images, rows, augmentation, black=True)
    padded = np.pad(images.numpy(), ((0, 0), (4, 4), (4, 4), (0, 0)))
    for one, row, (down, right), flip in zip(found.numpy(), rows, *map(torch.Tensor.tolist, augmentation), strict=True):
        top, left = 4 - down, 4 - right
        expected = padded[row, top : top + 8, left : left + 8]
        assert np.array_equal(one, expected[:, ::-1] if flip else expected)
