from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import pnml_bench.data.image_set
from pnml_bench.data import ImageSet
from pnml_bench.data.lazy_images import LazyImages

if TYPE_CHECKING:
    from numpy.typing import NDArray

PIXELS = np.random.default_rng(0).integers(0, 256, (11, 5, 4, 3), dtype=np.uint8)


def as_lazy(pixels: NDArray[np.uint8]) -> LazyImages:
    return LazyImages(list(pixels), lambda image: image, (pixels.shape[1], pixels.shape[2]))


def make_set(*, lazy: bool = False) -> ImageSet:
    images = as_lazy(PIXELS) if lazy else PIXELS
    return ImageSet("some", images, np.arange(11, dtype=np.int64), "test", "a note")


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("transfer_bytes", [1, 5 * 4 * 3 * 7, 1 << 20])
@pytest.mark.parametrize("batch_size", [1, 3, 11, 50])
def test_batches_yield_all_images_in_order(
    *, batch_size: int, transfer_bytes: int, lazy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pnml_bench.data.image_set, "_TRANSFER_BYTES", transfer_bytes)
    batches = list(make_set(lazy=lazy).batches(batch_size, "cpu"))
    assert all(batch.dtype == torch.uint8 and batch.is_contiguous() for batch in batches)
    assert [len(batch) for batch in batches[:-1]] == [batch_size] * (len(batches) - 1)
    assert np.array_equal(torch.cat(batches).numpy(), np.moveaxis(PIXELS, -1, 1))


def test_arrays_of_other_dtype_or_shape_raise() -> None:
    with pytest.raises(ValueError, match=r"uint8 \(N, H, W, 3\), got float64 \(11, 5, 4, 3\)"):
        ImageSet("bad", PIXELS.astype(np.float64), None, "test", "")
    with pytest.raises(ValueError, match=r"uint8 \(N, H, W, 3\), got uint8 \(11, 3, 5, 4\)"):
        ImageSet("bad", np.moveaxis(PIXELS, -1, 1), None, "test", "")
    with pytest.raises(ValueError, match=r"int64 \(11,\), got int64 \(10,\)"):
        ImageSet("bad", PIXELS, np.arange(10, dtype=np.int64), "test", "")
    with pytest.raises(ValueError, match="got int32"):
        ImageSet("bad", PIXELS, np.arange(11, dtype=np.int32), "test", "")


@given(
    index=st.one_of(
        st.integers(-11, 10),
        st.slices(11),
        st.lists(st.integers(-11, 10)).map(lambda rows: np.asarray(rows, dtype=np.intp)),
        st.lists(st.booleans(), min_size=11, max_size=11).map(np.asarray),
    )
)
def test_lazy_images_index_like_an_array(index: Any) -> None:
    lazy = as_lazy(PIXELS)
    expected = PIXELS[index]
    found = lazy[index]
    assert found.dtype == np.uint8
    assert np.array_equal(found, expected)


def test_lazy_images_have_array_attributes() -> None:
    lazy = as_lazy(PIXELS)
    assert (len(lazy), lazy.shape, lazy.ndim, lazy.dtype) == (11, PIXELS.shape, PIXELS.ndim, PIXELS.dtype)
    assert np.array_equal(np.asarray(lazy, dtype=np.float32), PIXELS.astype(np.float32))
    with pytest.raises(IndexError):
        lazy[11]


def test_lazy_image_of_other_size_raises() -> None:
    with pytest.raises(ValueError, match=r"images of one size, got 4×5 and 6×6 pixels: pass size="):
        LazyImages(list(PIXELS), lambda image: image, (6, 6))[:]
