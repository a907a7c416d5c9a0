"""Scores for out-of-distribution detection: a larger score means more out-of-distribution.

``METHODS`` are the methods of the paper, ``REGRETS`` the pNML regret as a method of its own, ``PEERS`` the detectors of
the pytorch-ood package, and ``LAYER_PEERS`` those that are given the features of the same layers as the regret.

>>> from pnml_bench.methods import LAYER_PEERS, METHODS, PEERS, REGRETS
>>> list(METHODS), list(REGRETS)
(['baseline', 'odin', 'gram', 'oecc', 'energy'], ['pnml', 'pnml-last', 'pnml-paper', 'pnml-published'])
>>> list(PEERS)[:4], list(LAYER_PEERS)
(['mahalanobis', 'rmd', 'vim', 'knn'], ['knn-layers', 'mahalanobis-layers', 'nac'])
"""

from __future__ import annotations

from pnml_bench.methods.gram import GramMethod, Oecc
from pnml_bench.methods.layer_peers import LAYER_PEERS
from pnml_bench.methods.logit_scores import Baseline, Energy
from pnml_bench.methods.odin import Odin
from pnml_bench.methods.peers import PEERS, Peer
from pnml_bench.methods.protocol import Method, MethodFailedError
from pnml_bench.methods.regret import DeepRegret, LastRegret, PaperRegret, PublishedDetector, PublishedRegret
from pnml_bench.methods.view import Outputs, View

METHODS: dict[str, type[Method]] = {method.name: method for method in (Baseline, Odin, GramMethod, Oecc, Energy)}
REGRETS: dict[str, type[Method]] = {
    method.name: method for method in (DeepRegret, LastRegret, PaperRegret, PublishedRegret)
}
ALL_METHODS = {**METHODS, **REGRETS, **PEERS, **LAYER_PEERS}
GROUPS = {
    "all": tuple(METHODS),
    "peers": ("baseline", "energy", "pnml", "pnml-last", "pnml-paper", *PEERS),
    "layers": ("pnml", "pnml-last", "knn-layers", "mahalanobis-layers"),
}
"""Names of groups of methods: those of the paper, those of the leaderboard, and those that may use several layers.

"nac" is in no group: with one fixed value for all layers, as it runs here, it hardly detects anything.
"""

__all__ = [
    "ALL_METHODS",
    "GROUPS",
    "LAYER_PEERS",
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
    "Peer",
    "PublishedDetector",
    "View",
]
