"""Small classifiers whose last layer is no plain ``nn.Linear``; what enters it and what it computes is written out."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn

from .networks import CLASSES, FEATURES, images, rows, seeded

if TYPE_CHECKING:
    from collections.abc import Callable


class Classifier(NamedTuple):
    """A model with its last layer.

    Attributes:
        model: in eval mode.
        batch: returns so many samples for a seed: a tensor, or a dict of keyword arguments.
        embed: returns the embeddings of a batch, (n, M), computed by hand.
        weight: (C, M), with which softmax(embeddings @ weight.T + bias) is what the model says.
        bias: (C,).
        notes: a part of what ``print(guard)`` says about the head.
    """

    model: nn.Module
    batch: Callable[[int, int], Any]
    embed: Callable[[Any], Tensor]
    weight: Tensor
    bias: Tensor
    notes: str


def body(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, FEATURES), nn.Tanh())


def sequences(count: int, seed: int) -> Tensor:
    return torch.randn(count, 7, 8, generator=seeded(seed))


class Then(nn.Module):
    """A body, a head, and what a function makes of the head's output."""

    def __init__(self, inner: nn.Module, head: nn.Module, then: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.body, self.head, self.then = inner, head, then

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self.head(self.body(x)))


class LoRA(nn.Module):
    """A linear layer with an update of low rank, as peft wraps it."""

    def __init__(self, base_layer: nn.Linear) -> None:
        super().__init__()
        self.base_layer = base_layer
        self.lora_A = nn.Linear(base_layer.in_features, 2, bias=False)
        self.lora_B = nn.Linear(2, base_layer.out_features, bias=False)
        self.dropout = nn.Dropout(0.5)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.base_layer(x) + 4 * self.lora_B(self.lora_A(self.dropout(x)))
        return found


class Recurrent(nn.Module):
    """The head is applied to every step, and one of its outputs, or their mean, is returned."""

    def __init__(self, taken: str, *, batch_first: bool = True) -> None:
        super().__init__()
        self.gru = nn.GRU(8, FEATURES, batch_first=batch_first)
        self.head, self.taken, self.batch_first = nn.Linear(FEATURES, CLASSES), taken, batch_first

    def steps(self, x: Tensor) -> Tensor:
        """Return (n, T, M)."""
        found: Tensor = self.gru(x if self.batch_first else x.transpose(0, 1))[0]
        return found if self.batch_first else found.transpose(0, 1)

    def forward(self, x: Tensor) -> Tensor:
        steps: Tensor = self.gru(x if self.batch_first else x.transpose(0, 1))[0]
        logits: Tensor = self.head(steps)
        axis = 1 if self.batch_first else 0
        return logits.select(axis, -1) if self.taken == "last" else logits.mean(dim=axis)


def after_body(head: nn.Module, then: Callable[[Tensor], Tensor], weights: Any, notes: str) -> Classifier:
    inner = body()
    model = Then(inner, head, then).eval()
    weight, bias = weights
    return Classifier(model, rows, inner, weight.detach(), bias.detach(), notes)


def low_rank() -> Classifier:
    torch.manual_seed(2)
    head = LoRA(nn.Linear(FEATURES, CLASSES))
    base, down, up = (layer.weight.detach().double() for layer in (head.base_layer, head.lora_A, head.lora_B))
    return after_body(head, lambda z: z, (base + 4 * up @ down, head.base_layer.bias), "affine")


def pixels(kernel: int, notes: str) -> Classifier:
    """A convolution is the last layer: of one pixel and averaged, or as large as the map."""
    torch.manual_seed(0)
    inner = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Tanh())
    head = nn.Conv2d(4, CLASSES, kernel)
    tail = [nn.AdaptiveAvgPool2d(1), nn.Flatten()] if kernel == 1 else [nn.Flatten()]
    model = nn.Sequential(inner, head, *tail).eval()
    assert head.bias is not None
    weight, bias = head.weight.detach().flatten(1), head.bias.detach()
    return Classifier(
        model, images, lambda x: inner(x).mean(dim=(2, 3)) if kernel == 1 else inner(x).flatten(1), weight, bias, notes
    )


def recurrent(taken: str, *, batch_first: bool, notes: str) -> Classifier:
    torch.manual_seed(0)
    model = Recurrent(taken, batch_first=batch_first).eval()

    def embed(x: Tensor) -> Tensor:
        steps = model.steps(x)
        return steps[:, -1] if taken == "last" else steps.mean(dim=1)

    return Classifier(model, sequences, embed, model.head.weight.detach(), model.head.bias.detach(), notes)


def decoder(name: str) -> Classifier:
    """A language model's decoder with a classifier on the last token that is no padding."""
    transformers: Any = import_module("transformers")
    torch.manual_seed(0)
    sizes = {"n_embd": FEATURES, "n_layer": 2, "n_head": 2} if name == "GPT2" else {}
    sizes = sizes or {"hidden_size": FEATURES, "num_hidden_layers": 2, "num_attention_heads": 2}
    more = {} if name == "GPT2" else {"num_key_value_heads": 2, "intermediate_size": 16}
    config = getattr(transformers, f"{name}Config")(
        vocab_size=50, num_labels=CLASSES, pad_token_id=0, initializer_range=0.3, **sizes, **more
    )
    model = getattr(transformers, f"{name}ForSequenceClassification")(config).eval()

    def batch(count: int, seed: int) -> dict[str, Tensor]:
        lengths = torch.randint(3, 9, (count,), generator=seeded(seed + 100))
        mask = (torch.arange(8) < lengths[:, None]).long()
        return {"input_ids": torch.randint(1, 50, (count, 8), generator=seeded(seed)) * mask, "attention_mask": mask}

    def embed(given: dict[str, Tensor]) -> Tensor:
        states: Tensor = model.base_model(**given).last_hidden_state
        last = given["attention_mask"].sum(dim=1) - 1
        return states[torch.arange(len(last)), last]

    weight = model.score.weight.detach()
    return Classifier(model, batch, embed, weight, torch.zeros(CLASSES), "one token of each sample")


def followed_by(then: Callable[[Tensor], Tensor], notes: str) -> Classifier:
    torch.manual_seed(5)
    head = nn.Linear(FEATURES, CLASSES)
    return after_body(head, then, (head.weight, head.bias), notes)


def one_logit(then: Callable[[Tensor], Tensor], notes: str) -> Classifier:
    torch.manual_seed(5)
    head = nn.Linear(FEATURES, 1)
    weight, bias = torch.zeros(2, FEATURES), torch.zeros(2)
    weight[1], bias[1] = head.weight.detach()[0], head.bias.detach()[0]
    return after_body(head, then, (weight, bias), notes)


def classifiers() -> dict[str, Callable[[], Classifier]]:
    """Return what makes every classifier, by name."""
    return {
        "softmax": lambda: followed_by(lambda z: z.softmax(dim=1), "before softmax"),
        "log_softmax": lambda: followed_by(lambda z: z.log_softmax(dim=1), "before log_softmax"),
        "one logit": lambda: one_logit(lambda z: z, "one logit as two classes"),
        "one logit, squeezed": lambda: one_logit(lambda z: z[:, 0], "one logit as two classes"),
        "one logit, sigmoid": lambda: one_logit(torch.sigmoid, "before sigmoid, one logit as two classes"),
        "low rank": low_rank,
        "convolution of a pixel": lambda: pixels(1, "mean over tokens or pixels"),
        "convolution of all": lambda: pixels(6, "head 1,"),
        "recurrent, last step": lambda: recurrent("last", batch_first=True, notes="one token of each sample"),
        "recurrent, mean": lambda: recurrent("mean", batch_first=True, notes="mean over tokens or pixels"),
        "recurrent, steps first": lambda: recurrent("last", batch_first=False, notes="one token of each sample"),
        "GPT-2": lambda: decoder("GPT2"),
        "Llama": lambda: decoder("Llama"),
        "Qwen2": lambda: decoder("Qwen2"),
    }
