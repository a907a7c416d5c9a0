"""OECC (Papadopoulos et al., 2021), as the paper runs it: Gram on a network tuned with OECC's loss."""

from __future__ import annotations

from pnml.bench.methods.gram_method import GramMethod


class Oecc(GramMethod):
    """The Gram score of an OECC-tuned network; with pNML, as for Gram."""

    name = "oecc"
