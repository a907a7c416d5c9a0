"""The classifiers that the guard is tried on, with random weights, and batches for them."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

CLASSES = 5
FEATURES = 12


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def rows(count: int, seed: int = 0) -> Tensor:
    """Inputs of the MLP, most of them in the middle of its range."""
    return torch.randn(count, 8, generator=seeded(seed))


def images(count: int, seed: int = 0, size: int = 8) -> Tensor:
    return torch.randn(count, 3, size, size, generator=seeded(seed))


def loader(inputs: Tensor, batch_size: int = 16) -> DataLoader[tuple[Tensor, ...]]:
    """An ordinary loader of (input, label) batches."""
    return DataLoader(TensorDataset(inputs, torch.zeros(len(inputs), dtype=torch.long)), batch_size=batch_size)


def mlp(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(8, FEATURES), nn.ReLU(), nn.Dropout(0.5), nn.Linear(FEATURES, CLASSES))


class CNN(nn.Module):
    """Convolutions with batch normalisation, whose buffers a pass in training mode would move."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, FEATURES, 3), nn.BatchNorm2d(FEATURES), nn.ReLU())
        self.drop = nn.Dropout(0.5)
        self.classifier = nn.Linear(FEATURES, CLASSES)

    def features(self, x: Tensor) -> Tensor:
        embeddings: Tensor = self.body(x).mean(dim=(2, 3))
        return embeddings

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.drop(self.features(x)))
        return logits


def channels_last(model: CNN) -> CNN:
    for parameter in model.parameters():
        if parameter.ndim == 4:
            parameter.data = parameter.data.contiguous(memory_format=torch.channels_last)
    return model


class Timm(CNN):
    """The interface that timm's models share."""

    def get_classifier(self) -> nn.Linear:
        return self.classifier

    def forward_features(self, x: Tensor) -> Tensor:
        maps: Tensor = self.body(x)
        return maps

    def forward_head(self, x: Tensor, *, pre_logits: bool = False) -> Tensor:
        x = self.drop(x.mean(dim=(2, 3)))
        if not pre_logits:
            x = self.get_classifier()(x)
        return x

    def forward(self, x: Tensor) -> Tensor:
        return self.forward_head(self.forward_features(x))


def vit() -> Any:
    transformers: Any = import_module("transformers")
    torch.manual_seed(0)
    config = transformers.ViTConfig(
        hidden_size=FEATURES,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=8,
        patch_size=4,
        num_labels=CLASSES,
    )
    return transformers.ViTForImageClassification(config).eval()


def bert() -> Any:
    transformers: Any = import_module("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=50,
        hidden_size=FEATURES,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        initializer_range=0.3,
        num_labels=CLASSES,
    )
    return transformers.BertForSequenceClassification(config).eval()


def sentences(count: int, seed: int = 0) -> dict[str, Tensor]:
    """A batch as a Hugging Face collator makes it, labels included."""
    return {
        "input_ids": torch.randint(0, 50, (count, 10), generator=seeded(seed)),
        "attention_mask": torch.ones(count, 10, dtype=torch.long),
        "labels": torch.zeros(count, dtype=torch.long),
    }


def sequences(count: int, length: int = 7, seed: int = 0) -> Tensor:
    return torch.randn(count, length, 5, generator=seeded(seed))


class Encoder(nn.Module):
    """A transformer of PyTorch's own encoder layers; padding is left out of what it computes."""

    def __init__(self, *, batch_first: bool = True, depth: int = 4) -> None:
        super().__init__()
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 12, batch_first=batch_first, activation="gelu")
        self.embed = nn.Linear(5, 8)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=batch_first)
        self.head, self.batch_first = nn.Linear(8, CLASSES), batch_first

    def forward(self, x: Tensor, padding_mask: Tensor | None = None) -> Tensor:
        x = self.embed(x)
        x = x if self.batch_first else x.transpose(0, 1)
        x = self.encoder(x, src_key_padding_mask=padding_mask)
        logits: Tensor = self.head((x if self.batch_first else x.transpose(0, 1))[:, 0])
        return logits


class Repeated(nn.Module):
    """One block that is called three times."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.block, self.head = nn.Linear(8, 8), nn.Linear(8, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(3):
            x = self.block(x).tanh()
        logits: Tensor = self.head(x)
        return logits


class Tokens(nn.Module):
    """Words, a mean over those that count by an argument of some name, and a head."""

    def __init__(self, name: str = "attention_mask", *, padding_idx: int | None = None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(50, FEATURES, padding_idx=padding_idx)
        self.first, self.second = nn.Linear(FEATURES, FEATURES), nn.Linear(FEATURES, FEATURES)
        self.head, self.name = nn.Linear(FEATURES, CLASSES), name

    def forward(self, input_ids: Tensor, **masks: Tensor) -> Tensor:
        x = self.second(self.first(self.words(input_ids)).tanh()).tanh()
        mask = masks.get(self.name)
        if mask is None:
            share = input_ids.ne(self.words.padding_idx or 0).to(x)
        elif mask.ndim == 1:
            share = (torch.arange(input_ids.shape[1]) < mask[:, None]).to(x)
        else:
            share = mask.eq(0).to(x) if "padding" in self.name else mask.to(x)
        pooled = (x * share[..., None]).sum(1) / share.sum(1, keepdim=True)
        logits: Tensor = self.head(pooled)
        return logits


def texts(count: int, seed: int = 0, length: int = 10) -> tuple[Tensor, Tensor]:
    """Token numbers, 0 for padding at the end, and the lengths of the texts."""
    lengths = torch.randint(3, length + 1, (count,), generator=seeded(seed + 100))
    counts = torch.arange(length) < lengths[:, None]
    return torch.randint(1, 50, (count, length), generator=seeded(seed)) * counts, lengths
