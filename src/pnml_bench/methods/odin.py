"""ODIN (Liang et al., 2018): 1 − max softmax at temperature 1000 of images perturbed towards the predicted class."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from pnml.metrics import auroc
from pnml_bench.methods.logit_scores import msp_score
from pnml_bench.methods.protocol import Method
from pnml_bench.methods.view import Outputs, View, concatenate, forward

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from pnml_bench.methods.protocol import Rows
    from pnml_bench.zoo import Network

TEMPERATURE = 1000.0
EPSILONS = (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.0024, 0.005, 0.01, 0.05, 0.1)
"""The paper's grid of perturbation sizes ε, for images in [0, 1]."""
SELECTION_IMAGES = 1000
"""The number of training images that ε is selected on."""


class Odin(Method):
    """1 − max softmax(logits / T) of the perturbed image; combined with pNML, its regret (without T).

    The perturbed image is x − ε · sign(∇ₓ cross entropy(logits / T, predicted class)) / std in normalised input space,
    with the std of each channel: a step of ε in images in [0, 1].

    Args:
        oracle: select ε for each OOD set by the AUROC on that same set, as the published rows did, separately for ODIN
            and ODIN+pNML. By default ε is the one with the lowest mean score on 1,000 random training images (Hsu et
            al., 2020), without any OOD image.
        seed: of the choice of those training images.
    """

    name = "odin"

    def __init__(self, *, oracle: bool = False, seed: int = 0) -> None:
        self.oracle = oracle
        self.seed = seed
        self._candidates: tuple[float, ...] = EPSILONS
        self.epsilon = self.epsilon_with_pnml = EPSILONS[0]

    def fit(self, train: View) -> Odin:
        """Select ε on training images, unless the oracle does."""
        super().fit(train)
        self._candidates = EPSILONS
        if not self.oracle:
            outputs = self._perturbed(_sample(train, self.seed))
            self.epsilon = min(EPSILONS, key=lambda epsilon: float(_score(outputs[epsilon]).mean()))
            self.epsilon_with_pnml = self.epsilon
            self._candidates = (self.epsilon,)
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The selected ε, and whether the oracle selected it."""
        return {"epsilon": self.epsilon, "epsilon_with_pnml": self.epsilon_with_pnml, "oracle": self.oracle}

    def score(self, view: View) -> Tensor:
        """Return 1 − max softmax(logits / T) of every perturbed image, shape (n,)."""
        return _score(self._perturbed(view)[self.epsilon])

    def score_with_pnml(self, view: View) -> Tensor:
        """Return the regret of every perturbed image, shape (n,)."""
        return self._regret(self._perturbed(view)[self.epsilon_with_pnml])

    def trials(self, ind: View, ood: View) -> Iterator[Rows]:
        """Select ε on this pair if the oracle is on; then a single trial on all rows."""
        if self.oracle:
            self.epsilon = self._select_by_auroc(ind, ood, _score)
            self.epsilon_with_pnml = self._select_by_auroc(ind, ood, self._regret)
        yield from super().trials(ind, ood)

    def _select_by_auroc(self, ind: View, ood: View, score: Callable[[Outputs], Tensor]) -> float:
        ind_outputs, ood_outputs = self._perturbed(ind), self._perturbed(ood)
        return max(
            self._candidates, key=lambda epsilon: auroc(score(ind_outputs[epsilon]), score(ood_outputs[epsilon]))
        )

    def _regret(self, outputs: Outputs) -> Tensor:
        regret: Tensor = self.detector.score(outputs.embeddings)
        return regret

    def _perturbed(self, view: View) -> dict[float, Outputs]:
        found: dict[float, Outputs] = view.cached("odin", dict)
        if missing := [epsilon for epsilon in self._candidates if epsilon not in found]:
            found.update(perturbed_outputs(view, missing))
        return found


def perturbed_outputs(view: View, epsilons: Sequence[float]) -> dict[float, Outputs]:
    """Return the outputs of the images perturbed by each ε, from one gradient per image."""
    parts: dict[float, list[Outputs]] = {epsilon: [] for epsilon in epsilons}
    for x in view.inputs("ODIN"):
        step = direction(view.network, x)
        with torch.inference_mode():
            for epsilon in epsilons:
                parts[epsilon].append(forward(view.network, x - epsilon * step))
    return {epsilon: concatenate(part) for epsilon, part in parts.items()}


def direction(network: Network, x: Tensor) -> Tensor:
    """Return sign(∇ₓ cross entropy(logits / T, predicted class)) / std of normalised images (n, 3, H, W)."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        logits: Tensor = network(x) / TEMPERATURE
        loss = cross_entropy(logits, logits.argmax(dim=-1), reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
    return gradient.sign() / network.normalise.std


def _score(outputs: Outputs) -> Tensor:
    return msp_score(outputs.logits.double() / TEMPERATURE)


def _sample(train: View, seed: int) -> View:
    """Return a view of at most ``SELECTION_IMAGES`` random training images."""
    rows = np.random.default_rng(seed).permutation(len(train))[:SELECTION_IMAGES]
    images = replace(train.images, images=train.images.images[rows], labels=None)
    return View(train.network, images, batch_size=train.batch_size)
