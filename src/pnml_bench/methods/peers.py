"""The peers: detectors of pytorch-ood that see the embeddings and the last layer of a network, older ones first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pnml.backend.extras import require
from pnml_bench.methods.peer import Peer

if TYPE_CHECKING:
    from pnml_bench.zoo import Network


class Mahalanobis(Peer):
    """Lee et al., 2018: distance to the nearest class mean, under one covariance for all classes."""

    name, class_name = "mahalanobis", "Mahalanobis"


class Rmd(Peer):
    """Ren et al., 2021: the Mahalanobis distance minus the distance under one Gaussian for all training images."""

    name, class_name = "rmd", "RMD"


class Vim(Peer):
    """Wang et al., 2022: the norm of the embedding outside of a principal subspace, combined with the energy.

    The package has no default dimension of the subspace. The paper's authors use 1,000 for more than 1,500 features
    and 512 otherwise; for networks with no more features than that, it is half of them, as in the package.
    """

    name, class_name = "vim", "ViM"

    def constructor_arguments(self, network: Network) -> dict[str, Any]:
        """Return the dimension and the last layer."""
        head, width = network.head, network.head.in_features
        authors = 1000 if width > 1500 else 512
        d = authors if width > authors else width // 2
        return {"encoder": None, "d": d, "w": head.weight.detach(), "b": head.bias.detach()}


class Knn(Peer):
    """Sun et al., 2022: distance to the 50th nearest training embedding, at norm 1; computed on the CPU."""

    name, class_name = "knn", "KNN"
    runs_on = "cpu"

    def __init__(self) -> None:
        super().__init__()
        require("sklearn.neighbors", extra="sklearn", what=f"the method {self.name!r}")


class React(Peer):
    """Sun et al., 2021: the energy of embeddings clipped at the 90th percentile of the training set."""

    name, class_name, input_kind, needs_head = "react", "ReAct", "feature_maps", True


class Ash(Peer):
    """Djurisic et al., 2023: the energy of embeddings with small values removed and the rest scaled up (ASH-S).

    It is applied to the embedding, after pooling, as in the code of its authors.
    """

    name, class_name, input_kind, needs_head = "ash", "ASH", "feature_maps", True


class She(Peer):
    """Zhang et al., 2023: inner product with the mean embedding of the predicted class, negated."""

    name, class_name, needs_head, needs_every_class = "she", "SHE", True, True


class Gen(Peer):
    """Liu et al., 2023: a generalised entropy of the probabilities."""

    name, class_name, input_kind = "gen", "GEN", "logits"


class KlMatching(Peer):
    """Hendrycks et al., 2022: divergence from the mean training probabilities of the nearest class."""

    name, class_name, input_kind = "kl-matching", "KLMatching", "logits"


class MaxLogit(Peer):
    """Hendrycks et al., 2022: the largest logit, negated."""

    name, class_name, input_kind = "maxlogit", "MaxLogit", "logits"


class PytorchOodPnml(Peer):
    """The implementation of the paper's regret in pytorch-ood: in float32, divided by log C."""

    name, class_name, needs_head = "pytorch-ood-pnml", "PNML", True


class UnitMahalanobis(Mahalanobis):
    """Müller and Hein, 2025 (Mahalanobis++): the Mahalanobis distance of embeddings at norm 1."""

    name, unit_norm = "mahalanobis-plus", True


class UnitRmd(Rmd):
    """The relative Mahalanobis distance of embeddings at norm 1, also from Müller and Hein, 2025."""

    name, unit_norm = "rmd-plus", True


class Gmm(Peer):
    """One Gaussian for each class, with a covariance of its own: the negative log-likelihood of their mixture."""

    name, class_name = "gmm", "GMM"


class Dice(Peer):
    """Sun and Li, 2022: the energy of a last layer without the weights that contribute least on training images.

    The package has no default share of weights; 90% of them are removed, as its authors do for CIFAR.
    """

    name, class_name = "dice", "DICE"

    def constructor_arguments(self, network: Network) -> dict[str, Any]:
        """Return the share of weights to remove and the last layer."""
        return {"encoder": None, "p": 0.9, "w": network.head.weight.detach(), "b": network.head.bias.detach()}


class Vra(Peer):
    """Xu et al., 2023: the energy of embeddings clipped to the 1st and 99th percentile of each feature."""

    name, class_name, input_kind, needs_head = "vra", "VRA", "feature_maps", True


class NnGuide(Peer):
    """Park et al., 2023: the energy times the similarity to the 10 nearest training embeddings, negated."""

    name, class_name, needs_head = "nnguide", "NNGuide", True


class Scale(Peer):
    """Xu et al., 2024: the energy of embeddings scaled by how much of their sum is in the largest features."""

    name, class_name, input_kind, needs_head = "scale", "SCALE", "feature_maps", True


class Lts(Peer):
    """Djurisic et al., 2025: the energy of logits scaled by how much of the embedding is in its largest features."""

    name, class_name, needs_head = "lts", "LTS", True


class LinearHeadPeer(Peer):
    """A peer that reads the weight of the last layer."""

    def constructor_arguments(self, network: Network) -> dict[str, Any]:
        """Return the last layer itself."""
        return {"encoder": None, "head": network.head}


class Fdbd(LinearHeadPeer):
    """Liu and Qin, 2024: distance to the decision boundaries, relative to that to the training mean, negated."""

    name, class_name = "fdbd", "fDBD"


class Nci(LinearHeadPeer):
    """Liu and Qin, 2025: how far the embedding points along the weight of the predicted class, negated.

    With the package's default, the norm of the embedding has weight 0.
    """

    name, class_name = "nci", "NCI"
