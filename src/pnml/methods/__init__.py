"""The scores that the paper compares with and builds on, one per file; a larger score means more out-of-distribution.

>>> from pnml.methods import METHODS
>>> list(METHODS)
['baseline', 'odin', 'gram', 'oecc', 'energy']
"""

from __future__ import annotations

from pnml.methods.energy import Energy
from pnml.methods.gram_method import GramMethod
from pnml.methods.msp import Baseline
from pnml.methods.odin import Odin
from pnml.methods.oecc import Oecc
from pnml.methods.protocol import Method
from pnml.methods.view import Outputs, View

METHODS: dict[str, type[Method]] = {method.name: method for method in (Baseline, Odin, GramMethod, Oecc, Energy)}

__all__ = ["METHODS", "Baseline", "Energy", "GramMethod", "Method", "Odin", "Oecc", "Outputs", "View"]
