"""The paper's figures, each drawn by one module: data first, then the picture, written as PNG and SVG."""

from __future__ import annotations

from pnml.bench.figures._canvas import blank, save

__all__ = ["blank", "save"]
