"""Scores for out-of-distribution detection: a larger score means more out-of-distribution.

``METHODS`` are the methods of the paper, ``REGRETS`` the pNML regret as a method of its own, and ``PEERS`` the
detectors of the pytorch-ood package.

>>> from pnml.bench.methods import METHODS, PEERS, REGRETS
>>> list(METHODS), list(REGRETS)
(['baseline', 'odin', 'gram', 'oecc', 'energy'], ['pnml', 'pnml-paper'])
>>> list(PEERS)[:4]
['mahalanobis', 'rmd', 'vim', 'knn']
"""

from __future__ import annotations

from pnml.bench.methods import peers as _peers
from pnml.bench.methods.gram_method import GramMethod, Oecc
from pnml.bench.methods.logit_scores import Baseline, Energy
from pnml.bench.methods.odin import Odin
from pnml.bench.methods.protocol import Method, MethodFailedError
from pnml.bench.methods.regret import AutoRegret, PaperRegret
from pnml.bench.methods.view import Outputs, View

METHODS: dict[str, type[Method]] = {method.name: method for method in (Baseline, Odin, GramMethod, Oecc, Energy)}
REGRETS: dict[str, type[Method]] = {method.name: method for method in (AutoRegret, PaperRegret)}
PEERS: dict[str, type[Method]] = {
    method.name: method
    for method in (
        _peers.Mahalanobis,
        _peers.Rmd,
        _peers.Vim,
        _peers.Knn,
        _peers.React,
        _peers.Ash,
        _peers.She,
        _peers.Gen,
        _peers.KlMatching,
        _peers.MaxLogit,
        _peers.PytorchOodPnml,
    )
}
ALL_METHODS = {**METHODS, **REGRETS, **PEERS}
GROUPS = {"all": tuple(METHODS), "peers": ("baseline", "energy", *REGRETS, *PEERS)}
"""Names of groups of methods: those of the paper, and those of the leaderboard."""

__all__ = [
    "ALL_METHODS",
    "GROUPS",
    "METHODS",
    "PEERS",
    "REGRETS",
    "Baseline",
    "Energy",
    "GramMethod",
    "Method",
    "MethodFailedError",
    "Odin",
    "Oecc",
    "Outputs",
    "View",
]
