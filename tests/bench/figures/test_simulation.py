"""Test the simulated regret curves, and the files that figures are saved to."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest
from matplotlib.image import imread

from pnml_bench.figures import new_figure, save
from pnml_bench.figures.simulation import P1, curves, draw

if TYPE_CHECKING:
    from pathlib import Path


def test_curves_equal_the_regret_divided_by_log_two() -> None:
    xtg, heights = curves(resolution=11)
    for p, curve in zip(P1, heights, strict=True):
        for t, height in zip(xtg, curve, strict=True):
            genies = [q / (q + q**t * (1 - q)) for q in (p, 1 - p)]
            assert height == pytest.approx(np.log(sum(genies)) / np.log(2), rel=1e-9, abs=1e-12)


def test_draw_plots_and_labels_the_curves() -> None:
    (axes,) = draw().axes
    assert axes.get_xlim() == (0, 1)
    assert [text.get_text() for text in axes.texts] == [f"$p_1 = {p}$" for p in P1]
    for line, curve in zip(axes.lines, curves()[1], strict=True):
        np.testing.assert_array_equal(line.get_ydata(), curve)


def test_save_is_reproducible_and_has_200_dpi(tmp_path: Path) -> None:
    first, second = (save(draw(), tmp_path / folder, "same") for folder in ("one", "two"))
    assert imread(first[0]).shape[:2] == (640, 960)
    for one, two in zip(first, second, strict=True):
        assert one.read_bytes() == two.read_bytes()


def test_failed_save_leaves_no_files(tmp_path: Path) -> None:
    figure = new_figure(1, 1)
    figure.text(0, 0, r"$\nosuchsymbol$")
    with pytest.raises(ValueError, match="nosuchsymbol"):
        save(figure, tmp_path, "broken")
    assert list(tmp_path.iterdir()) == []
