"""ODIN (Liang et al., 2018): the largest softmax probability, at temperature 1000, of images nudged to their class."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from pnml.bench.methods.msp import msp_score
from pnml.bench.methods.protocol import Method
from pnml.bench.methods.view import Outputs, View, joined, run
from pnml.metrics import auroc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from pnml.bench.methods.protocol import Rows
    from pnml.bench.zoo import Network
    from pnml.core.detector import Detector

TEMPERATURE = 1000.0
EPSILONS = (0.0, 0.0005, 0.001, 0.0014, 0.002, 0.0024, 0.005, 0.01, 0.05, 0.1)
"""The paper's grid of perturbation sizes, in the units of images in [0, 1]."""
CHOSEN_ON = 1000
"""How many training images ε is chosen on."""


class Odin(Method):
    """1 − max softmax(logits / T) of the perturbed image; with pNML, the regret of the perturbed image (no T).

    The perturbed image is x − ε · sign(∇ₓ cross entropy(logits / T, most probable class)) / std in normalised input
    space, std of each channel: a step of ε in images of [0, 1].

    Args:
        oracle: choose ε for each OOD set by the AUROC on that very set, as the published rows did, for ODIN and
            ODIN+pNML apart. By default it is the ε that makes the network surest of 1,000 seeded training images
            (Hsu et al., 2020), so that no OOD image has a say.
        seed: of those training images.
    """

    name = "odin"

    def __init__(self, *, oracle: bool = False, seed: int = 0) -> None:
        self.oracle = oracle
        self.seed = seed
        self._tried: tuple[float, ...] = EPSILONS
        self.epsilon = self.epsilon_with_pnml = EPSILONS[0]

    def fit(self, train: View, detector: Detector) -> Odin:
        """Choose ε on training images, unless an oracle will."""
        super().fit(train, detector)
        self._tried = EPSILONS
        if not self.oracle:
            outputs = self._perturbed(_draw(train, self.seed))
            self.epsilon = min(EPSILONS, key=lambda epsilon: float(_score(outputs[epsilon]).mean()))
            self.epsilon_with_pnml = self.epsilon
            self._tried = (self.epsilon,)
        return self

    @property
    def settings(self) -> dict[str, Any]:
        """The ε in use, and who chose it."""
        return {"epsilon": self.epsilon, "epsilon_with_pnml": self.epsilon_with_pnml, "oracle": self.oracle}

    def score(self, view: View) -> Tensor:
        """Give 1 − max softmax(logits / T) of every perturbed image, shape (n,)."""
        return _score(self._perturbed(view)[self.epsilon])

    def score_with_pnml(self, view: View) -> Tensor:
        """Give the regret of every perturbed image, shape (n,)."""
        return self._regret(self._perturbed(view)[self.epsilon_with_pnml])

    def trials(self, ind: View, ood: View) -> Iterator[Rows]:
        """Let the oracle look at the pair, if there is one."""
        if self.oracle:
            self.epsilon = self._best(ind, ood, _score)
            self.epsilon_with_pnml = self._best(ind, ood, self._regret)
        yield from super().trials(ind, ood)

    def _best(self, ind: View, ood: View, score: Callable[[Outputs], Tensor]) -> float:
        here, there = self._perturbed(ind), self._perturbed(ood)
        return max(self._tried, key=lambda epsilon: auroc(score(here[epsilon]), score(there[epsilon])))

    def _regret(self, outputs: Outputs) -> Tensor:
        regret: Tensor = self.detector.score(outputs.embeddings)
        return regret

    def _perturbed(self, view: View) -> dict[float, Outputs]:
        return view.once(("odin", self._tried), lambda: perturbed_outputs(view, self._tried))


def perturbed_outputs(view: View, epsilons: Sequence[float]) -> dict[float, Outputs]:
    """Give the outputs of a view's images perturbed by each ε, from one gradient per image."""
    parts: dict[float, list[Outputs]] = {epsilon: [] for epsilon in epsilons}
    for x in view.inputs("ODIN"):
        step = direction(view.network, x)
        with torch.inference_mode():
            for epsilon in epsilons:
                parts[epsilon].append(run(view.network, x - epsilon * step))
    return {epsilon: joined(part) for epsilon, part in parts.items()}


def direction(network: Network, x: Tensor) -> Tensor:
    """Give sign(∇ₓ cross entropy(logits / T, most probable class)) / std of normalised images (n, 3, H, W)."""
    with torch.inference_mode(mode=False), torch.enable_grad():
        x = x.detach().clone().requires_grad_()
        logits: Tensor = network(x) / TEMPERATURE
        loss = cross_entropy(logits, logits.argmax(dim=-1), reduction="sum")
        (gradient,) = torch.autograd.grad(loss, x)
    return gradient.sign() / network.normalise.std


def _score(outputs: Outputs) -> Tensor:
    return msp_score(outputs.logits.double() / TEMPERATURE)


def _draw(train: View, seed: int) -> View:
    """Take some training images at random, or all where there are no more."""
    rows = np.random.default_rng(seed).permutation(len(train))[:CHOSEN_ON]
    images = replace(train.images, images=train.images.images[rows], labels=None)
    return View(train.network, images, batch_size=train.batch_size)
