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

from pnml_bench.methods import peers as _peers
from pnml_bench.methods.gram_method import GramMethod, Oecc
from pnml_bench.methods.logit_scores import Baseline, Energy
from pnml_bench.methods.nac import Nac
from pnml_bench.methods.odin import Odin
from pnml_bench.methods.peer import Peer
from pnml_bench.methods.protocol import Method, MethodFailedError
from pnml_bench.methods.published import PublishedDetector, PublishedRegret
from pnml_bench.methods.regret import DeepRegret, LastRegret, PaperRegret
from pnml_bench.methods.several_layers import KnnLayers, MahalanobisLayers
from pnml_bench.methods.view import Outputs, View

METHODS: dict[str, type[Method]] = {method.name: method for method in (Baseline, Odin, GramMethod, Oecc, Energy)}
REGRETS: dict[str, type[Method]] = {
    method.name: method for method in (DeepRegret, LastRegret, PaperRegret, PublishedRegret)
}
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
        _peers.UnitMahalanobis,
        _peers.UnitRmd,
        _peers.Gmm,
        _peers.Dice,
        _peers.Vra,
        _peers.NnGuide,
        _peers.Scale,
        _peers.Lts,
        _peers.Fdbd,
        _peers.Nci,
    )
}
LAYER_PEERS: dict[str, type[Method]] = {method.name: method for method in (KnnLayers, MahalanobisLayers, Nac)}
ALL_METHODS = {**METHODS, **REGRETS, **PEERS, **LAYER_PEERS}
GROUPS = {
    "all": tuple(METHODS),
    "peers": ("baseline", "energy", "pnml", "pnml-last", "pnml-paper", *PEERS),
    "layers": ("pnml", "pnml-last", KnnLayers.name, MahalanobisLayers.name),
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
