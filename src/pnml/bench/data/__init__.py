"""Image sets in their publishers' layouts: find, download, verify, and load as uint8 arrays."""

from __future__ import annotations

from pnml.bench.data.image_set import ImageSet
from pnml.bench.data.registry import SETS, load
from pnml.bench.data.source import DataNotFoundError

__all__ = ["SETS", "DataNotFoundError", "ImageSet", "load"]
