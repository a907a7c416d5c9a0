"""The small world of the benchmark's tests: made images, and small networks in place of the published ones."""

from __future__ import annotations

from bench.conftest import made_images, made_weights, small_world

__all__ = ["made_images", "made_weights", "small_world"]
