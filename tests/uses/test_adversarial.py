"""Compare the attacks with their closed form on linear models, and test the constraints on their images."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from pnml.uses.adversarial import NormalisingModel, fgsm, pgd

EPSILONS = [2 / 255, 8 / 255, 0.3]


@pytest.fixture
def images() -> Tensor:
    return torch.rand(20, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def labels() -> Tensor:
    return torch.arange(20) % 4


@pytest.fixture
def network() -> nn.Module:
    torch.manual_seed(1)
    layers = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)
    return nn.Sequential(*layers).eval()


def linear(classes: int = 2) -> nn.Sequential:
    torch.manual_seed(2)
    return nn.Sequential(nn.Flatten(), nn.Linear(192, classes)).eval()


def losses(model: nn.Module, images: Tensor, labels: Tensor) -> Tensor:
    with torch.no_grad():
        return cross_entropy(model(images), labels, reduction="none")


def attack_all(model: nn.Module, images: Tensor, labels: Tensor, epsilon: float) -> list[Tensor]:
    return [attack(model, images, labels, epsilon=epsilon) for attack in (fgsm, pgd)]


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_attacks_on_two_linear_classes_match_the_closed_form(images: Tensor, epsilon: float) -> None:
    # The gradient is a positive multiple of w_other - w_label: every pixel moves to a bound of its range.
    model = linear()
    labels = torch.arange(20) % 2
    weight = dict(model.named_parameters())["1.weight"].detach()
    direction = (weight[1 - labels] - weight[labels]).sign().reshape(images.shape)
    worst = (images + epsilon * direction).clamp(0, 1)
    for found in attack_all(model, images, labels, epsilon):
        torch.testing.assert_close(found, worst, rtol=0, atol=1e-6)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_fgsm_follows_the_sign_of_the_numerical_gradient(images: Tensor, labels: Tensor, epsilon: float) -> None:
    model, x = linear(4).double(), images[:2].double()
    moved = fgsm(model, x, labels[:2], epsilon=epsilon) - x
    for place in [(0, 0, 0, 0), (1, 2, 5, 3), (1, 1, 7, 7)]:
        nudge = torch.zeros_like(x)
        nudge[place] = 1e-5
        up, down = (float(losses(model, x + side * nudge, labels[:2]).sum()) for side in (1, -1))
        room = 1 - x[place] if up > down else x[place]
        assert abs(moved[place]) == pytest.approx(min(epsilon, float(room)), abs=1e-9)
        assert (moved[place] > 0) == (up > down)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_attacks_stay_in_the_ball_and_increase_every_loss(
    network: nn.Module, images: Tensor, labels: Tensor, epsilon: float
) -> None:
    before = losses(network, images, labels)
    single, several = attack_all(network, images, labels, epsilon)
    for found in (single, several):
        assert found.shape == images.shape
        assert found.dtype == images.dtype
        assert float((found - images).abs().max()) <= epsilon + 1e-6
        assert float(found.min()) >= 0
        assert float(found.max()) <= 1
        assert bool((losses(network, found, labels) > before).all())
    assert float(losses(network, several, labels).mean()) >= 0.99 * float(losses(network, single, labels).mean())


def test_pgd_equals_its_definition(network: nn.Module, images: Tensor, labels: Tensor) -> None:
    epsilon, steps = 0.1, 3
    start = torch.rand(images.shape, generator=torch.Generator().manual_seed(7))
    x = (images + epsilon * (2 * start - 1)).clamp(0, 1)
    for _ in range(steps):
        x = x.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(cross_entropy(network(x), labels), x)
        x = x + 2.5 * epsilon / steps * gradient.sign()
        x = (images + (x - images).clamp(-epsilon, epsilon)).clamp(0, 1)
    found = pgd(network, images, labels, epsilon=epsilon, steps=steps, seed=7)
    torch.testing.assert_close(found, x.detach(), rtol=0, atol=1e-6)
    assert not torch.equal(found, pgd(network, images, labels, epsilon=epsilon, steps=steps, seed=8))


def test_attacks_do_not_change_the_model_or_the_images(network: nn.Module, images: Tensor, labels: Tensor) -> None:
    state = {name: value.clone() for name, value in network.state_dict().items()}
    copy = images.clone()
    with torch.inference_mode():
        found = attack_all(network, images, labels, 0.1)
    assert all(bool((x != images).any()) for x in found)
    assert not any(x.requires_grad for x in found)
    assert torch.equal(images, copy)
    assert all(torch.equal(value, state[name]) for name, value in network.state_dict().items())
    assert all(parameter.grad is None for parameter in network.parameters())


def test_attacks_accept_models_that_return_a_dict(images: Tensor, labels: Tensor) -> None:
    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = linear(4)

        def forward(self, x: Tensor) -> dict[str, Any]:
            return {"logits": self.inner(x)}

    torch.testing.assert_close(fgsm(Wrapped().eval(), images, labels), fgsm(linear(4), images, labels))


def test_normalising_model_equals_network_on_normalised_images() -> None:
    network = linear()
    images = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    model = NormalisingModel(network, (0.1, 0.2, 0.3), (0.5, 0.25, 0.125))
    assert not model.training
    channels = [(images[:, 0] - 0.1) / 0.5, (images[:, 1] - 0.2) / 0.25, (images[:, 2] - 0.3) / 0.125]
    torch.testing.assert_close(model(images), network(torch.stack(channels, dim=1)))


@pytest.mark.parametrize("attack", [fgsm, pgd])
def test_attacks_raise_for_invalid_input(attack: Any, images: Tensor, labels: Tensor) -> None:
    model = linear(4)
    for bad, message in (
        ((255 * images).to(torch.uint8), "uint8: expected floats"),
        (images * 2 - 1, r"images are in \[-.*before any normalisation"),
        (images * torch.nan, "images are in"),
    ):
        with pytest.raises(ValueError, match=message):
            attack(model, bad, labels)
    with pytest.raises(ValueError, match=r"labels have shape \(19,\): expected one per image, shape \(20,\)"):
        attack(model, images, labels[1:])
    for epsilon in (0, 8):
        with pytest.raises(ValueError, match=f"epsilon is {epsilon}: .*such as 8 / 255"):
            attack(model, images, labels, epsilon=epsilon)
    with pytest.raises(ValueError, match=r"training mode.*model\.eval"):
        attack(model.train(), images, labels)


def test_pgd_raises_for_zero_steps(images: Tensor, labels: Tensor) -> None:
    with pytest.raises(ValueError, match="steps is 0"):
        pgd(linear(4), images, labels, steps=0)
