"""Image sets in their publishers' layouts: find, download, verify, and load as uint8 arrays."""

from __future__ import annotations

from pnml_bench.data.image_set import ImageSet
from pnml_bench.data.registry import SETS, load
from pnml_bench.data.source import DataNotFoundError

__all__ = ["SETS", "DataNotFoundError", "ImageSet", "load"]
