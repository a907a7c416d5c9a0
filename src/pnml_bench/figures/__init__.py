"""The figures of the paper, one module each, saved as PNG and SVG."""

from __future__ import annotations

from pnml_bench.figures._canvas import new_figure, save

__all__ = ["new_figure", "save"]
