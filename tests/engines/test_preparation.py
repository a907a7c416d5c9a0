"""The engines refuse images that are prepared in another way than those of the fit, before any work is done."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch

from pnml.engines import local, ray
from pnml.io.preparation import Preparation

from .images import SIDE, embedded, guard, write_images

if TYPE_CHECKING:
    from pathlib import Path


def test_engines_refuse_another_preparation_and_take_that_of_fit(tmp_path: Path) -> None:
    guarded, folder = guard(), write_images(tmp_path / "train", 40)
    samples = embedded(folder, guarded, batch=8)
    guarded.detector = local.fit(samples, guarded, progress=False).detector
    assert guarded.detector.preparation == {**Preparation().record(), "shape": [SIDE, SIDE]}
    for other in (Preparation(mean=(0.5,)), Preparation(size=2 * SIDE), Preparation(transform=torch.tensor)):
        with pytest.raises(ValueError, match=r"was fitted on images prepared with .*, got .*or fit again"):
            ray.score(folder, guarded, tmp_path / "scores", preparation=other, progress=False)
        guarded.detector.preparation = other.record()
        with pytest.raises(ValueError, match="was fitted on images prepared with"):
            local.score(samples, guarded.detector, tmp_path / "scores.csv", progress=False)
        with pytest.raises(ValueError, match="was fitted on images prepared with"):
            local.calibrate(samples, guarded.detector, false_alarm_rate=0.1, leave_one_out=True, progress=False)
        guarded.detector.preparation = samples.preparation_record
    assert not list(tmp_path.glob("scores*"))
