"""Who is measured: pnml, the detectors of pytorch-ood, scikit-learn, and the paper's published procedure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from pnml.integrations._import import import_pytorch_ood
from sklearn.covariance import EmpiricalCovariance
from torch import Tensor

from pnml import Detector

if TYPE_CHECKING:
    from collections.abc import Callable

OURS, QUICK, FUSED = "pnml, float64", "pnml, float32", "pnml, float32, compiled"
PEER, PAPER = "pytorch-ood PNML", "the paper's procedure"
COVARIANCE = "scikit-learn EmpiricalCovariance"

peers = import_pytorch_ood("benchmarks/speed.py").detector


@dataclass(frozen=True)
class Contender:
    """A detector to be timed.

    Attributes:
        fit: from training embeddings (N, M) and labels (N,) to something fitted.
        score: from that and embeddings (n, M) to scores (n,).
        cost: roughly, the floating-point operations one score takes, from M, C and N, times how slowly they are done.
        gives_regret: whether the scores are regrets in nats, whose error can be told.
    """

    fit: Callable[[Tensor, Tensor], Any]
    score: Callable[[Any, Tensor], Any]
    cost: Callable[[int, int, int], float]
    gives_regret: bool = False


def contenders(weight: Tensor, bias: Tensor) -> dict[str, Contender]:
    """Give all contenders for a last layer of weight (C, M) and bias (C,)."""
    classes, width = weight.shape

    def quadratic(m: int, c: int, _n: int) -> float:
        return 2.0 * m * (m + c)

    def fit_ours(x: Tensor, _labels: Tensor) -> Detector:
        detector = Detector(weight, bias, embedding_scale="paper").fit(x)
        _ = detector.subspace.whitening  # decompose now, not at the first score
        return detector

    def covariance(x: Tensor, _labels: Tensor) -> EmpiricalCovariance:
        return EmpiricalCovariance().fit(x.numpy())

    log_classes = float(torch.log(torch.tensor(float(classes))))
    return {
        OURS: Contender(fit_ours, lambda d, x: d.score(x), quadratic, gives_regret=True),
        QUICK: Contender(fit_ours, lambda d, x: d.score(x, precision="float32"), quadratic, gives_regret=True),
        FUSED: Contender(
            fit_ours, lambda d, x: d.score(x, precision="float32", compiled=True), quadratic, gives_regret=True
        ),
        PEER: Contender(
            lambda x, y: peers.PNML(None, lambda z: z @ weight.T + bias).fit_features(x, y),
            lambda d, x: d.predict_features(x) * log_classes,  # it divides by log C
            quadratic,
            gives_regret=True,
        ),
        PAPER: Contender(
            lambda x, _y: PaperProcedure(weight, bias).fit(x), lambda d, x: d.score(x), quadratic, gives_regret=True
        ),
        "pytorch-ood ViM": Contender(
            lambda x, y: peers.ViM(None, width // 2, weight, bias).fit_features(x, y),
            lambda d, x: d.predict_features(x),
            quadratic,
        ),
        "pytorch-ood Mahalanobis": Contender(
            lambda x, y: peers.Mahalanobis(None).fit_features(x, y),
            lambda d, x: d.predict_features(x),
            lambda m, c, _n: 2.0 * m * m * c,
        ),
        "pytorch-ood KNN": Contender(
            lambda x, y: peers.KNN(None, k=50).fit_features(x, y),
            lambda d, x: d.predict_features(x),
            lambda m, _c, n: 4.0 * m * n,
        ),
        COVARIANCE: Contender(covariance, lambda d, x: d.mahalanobis(x.numpy()), lambda m, _c, _n: 100.0 * m * m),
    }


class PaperProcedure:
    """The published procedure, as its formulas read: float32, all training rows kept to be inverted, batch by batch."""

    batch = 128

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self.weight, self.bias = weight, bias

    def fit(self, x: Tensor) -> PaperProcedure:
        """Invert the matrix of unit-norm training rows, and keep X⁺X⁺ᵀ."""
        inverse = torch.linalg.pinv(x / x.norm(dim=1, keepdim=True))
        self.projector = inverse @ inverse.T
        return self

    def score(self, x: Tensor) -> Tensor:
        """Give the regret of every row, from xᵀg of equation 9 and the genies of Lemma 1."""
        parts = []
        for batch in torch.split(x, self.batch):
            unit = batch / batch.norm(dim=1, keepdim=True)
            p = torch.softmax(unit @ self.weight.T + self.bias, dim=1)
            h = (unit[:, None] @ self.projector @ unit[:, :, None])[:, :, 0]
            xtg = h / (1 + h)
            genie = p / (p + p**xtg * (1 - p))
            parts.append(genie.sum(dim=1).log())
        return torch.cat(parts)
