"""The networks: each is trained on a task's inputs and then gives embeddings and the last layer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import corpora
import numpy as np
import torch
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import Tensor, nn

if TYPE_CHECKING:
    from collections.abc import Callable

    from tasks import Task

    Encode = Callable[[Any], np.ndarray]
    Trained = tuple[Encode, np.ndarray, np.ndarray]
    """Inputs to embeddings, the last layer's weight, its bias."""

TERMS, TOKENS = 2000, 80


def tfidf(task: Task) -> Encode:
    options: dict[str, Any] = {"analyzer": "char", "ngram_range": (1, 3)} if task.kind == "characters" else {}
    made = TfidfVectorizer(max_features=TERMS, sublinear_tf=True, **options).fit(task.train)
    return lambda texts: made.transform(texts).toarray().astype(np.float32)


def mean_vectors(_: Task) -> Encode:
    known = corpora.vectors()

    def encode(texts: list[str]) -> np.ndarray:
        rows = [[known[word] for word in text.split() if word in known] for text in texts]
        return np.array([np.mean(row, axis=0) if row else np.zeros(100) for row in rows], np.float32)

    return encode


def as_they_are(_: Task) -> Encode:
    return lambda x: np.asarray(x, np.float32)


def tokens(task: Task) -> tuple[Encode, nn.Embedding]:
    """Words with their pretrained vectors, or characters; 0 pads, 1 is unknown, 2 is [CLS]."""
    if task.kind == "characters":
        known = sorted(set("".join(task.train)))
        table, split = nn.Embedding(len(known) + 3, 100, padding_idx=0), list
    else:
        vectors = corpora.vectors()
        known = [word for word in corpora.vocabulary(task.train, 20000) if word in vectors]
        start = torch.cat([torch.zeros(1, 100), 0.3 * torch.randn(2, 100)])
        rows = torch.from_numpy(np.stack([vectors[word] for word in known]))
        table, split = nn.Embedding.from_pretrained(torch.cat([start, rows]), freeze=True, padding_idx=0), str.split
    number = {token: i + 3 for i, token in enumerate(known)}

    def encode(texts: list[str]) -> np.ndarray:
        found = np.zeros((len(texts), TOKENS), np.int64)
        for row, text in zip(found, texts, strict=True):
            ids = [2, *(number.get(token, 1) for token in split(text))][:TOKENS]
            row[: len(ids)] = ids
        return found

    return encode, table


class WordCnn(nn.Module):
    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.table = table
        self.widths = nn.ModuleList(nn.Conv1d(100, 64, width, padding=width // 2) for width in (3, 4, 5))
        self.dropout = nn.Dropout(0.5)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids).transpose(1, 2)
        return self.dropout(torch.cat([layer(x).relu().amax(2) for layer in self.widths], 1))


class Transformer(nn.Module):
    def __init__(self, table: nn.Embedding) -> None:
        super().__init__()
        self.table, self.narrow = table, nn.Linear(100, 64)
        self.place = nn.Parameter(0.02 * torch.randn(TOKENS, 64))
        layer = nn.TransformerEncoderLayer(64, 4, 128, 0.1, "gelu", batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(64), enable_nested_tensor=False)
        self.pooler, self.dropout = nn.Linear(64, 64), nn.Dropout(0.1)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.layers(self.narrow(self.table(ids)) + self.place, src_key_padding_mask=ids == 0)
        return self.dropout(self.pooler(x[:, 0]).tanh())


def image_cnn(_: int) -> tuple[nn.Module, int]:
    layers = (
        nn.Unflatten(1, (1, 28, 28)),
        *(nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(nn.Linear(32 * 49, 128), nn.ReLU()),
    )
    return nn.Sequential(*layers), 128


def mlp(*widths: int, act: str = "ReLU", norm: str = "", dropout: float = 0.0) -> Callable[[int], Any]:
    def make(inputs: int) -> tuple[nn.Module, int]:
        layers: list[nn.Module] = []
        for before, width in zip((inputs, *widths), widths, strict=False):
            layers += [nn.Linear(before, width), getattr(nn, act)(), *([getattr(nn, norm)(width)] if norm else [])]
        return nn.Sequential(*layers, nn.Dropout(dropout)), widths[-1]

    return make


def torch_network(
    task: Task, encode: Encode, body: nn.Module, width: int, *, epochs: int, decay: float = 0.0
) -> Trained:
    """Train with AdamW, batches of 64, one cycle of the learning rate up to 1e-3."""
    head = nn.Linear(width, int(task.train_labels.max()) + 1)
    x, y = torch.from_numpy(encode(task.train)), torch.from_numpy(task.train_labels)
    parameters = [p for p in (*body.parameters(), *head.parameters()) if p.requires_grad]
    steps = epochs * -(-len(x) // 64)
    optimiser = torch.optim.AdamW(parameters, lr=1e-3, weight_decay=decay)
    rate = torch.optim.lr_scheduler.OneCycleLR(optimiser, 1e-3, total_steps=steps)
    body.train()
    for _ in range(epochs):
        for batch in torch.randperm(len(x)).split(64):
            optimiser.zero_grad()
            nn.functional.cross_entropy(head(body(x[batch])), y[batch]).backward()
            optimiser.step()
            rate.step()
    body.eval()

    def embed(inputs: Any) -> np.ndarray:
        with torch.inference_mode():
            return torch.cat([body(rows) for rows in torch.from_numpy(encode(inputs)).split(500)]).numpy()

    return embed, head.weight.detach().numpy(), head.bias.detach().numpy()


def perceptron(
    features: Callable[[Task], Encode], make: Callable[[int], Any], *, epochs: int, decay: float = 0.0
) -> Callable[[Task], Trained]:
    def train(task: Task) -> Trained:
        encode = features(task)
        return torch_network(task, encode, *make(encode(task.train[:1]).shape[1]), epochs=epochs, decay=decay)

    return train


def sequence(kind: type[nn.Module], width: int, *, epochs: int) -> Callable[[Task], Trained]:
    def train(task: Task) -> Trained:
        encode, table = tokens(task)
        return torch_network(task, encode, kind(table), width, epochs=epochs)

    return train


def two_rows(weight: np.ndarray, bias: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A row for each class, also where scikit-learn has one row for two classes."""
    if len(weight) == 1:
        return np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    return weight, bias


def linear(features: Callable[[Task], Encode]) -> Callable[[Task], Trained]:
    """Logistic regression as scikit-learn has it by default: the embeddings are the features themselves."""

    def train(task: Task) -> Trained:
        encode = features(task)
        made = LogisticRegression(max_iter=1000).fit(encode(task.train), task.train_labels)
        return encode, *two_rows(made.coef_, made.intercept_)

    return train


def sklearn_mlp(*widths: int, act: str) -> Callable[[Task], Trained]:
    def train(task: Task) -> Trained:
        made = MLPClassifier(widths, activation=act, max_iter=300, random_state=torch.initial_seed() % 2**32)
        made.fit(task.train, task.train_labels)
        function = {"relu": lambda x: np.maximum(x, 0), "tanh": np.tanh}[act]

        def embed(x: np.ndarray) -> np.ndarray:
            for weight, bias in list(zip(made.coefs_, made.intercepts_, strict=True))[:-1]:
                x = function(x @ weight + bias)
            return x.astype(np.float32)

        return embed, made.coefs_[-1].T, made.intercepts_[-1]

    return train


TEXT = {
    "tfidf-linear": linear(tfidf),
    "tfidf-relu": perceptron(tfidf, mlp(256), epochs=10),
    "tfidf-relu-regularised": perceptron(tfidf, mlp(256, dropout=0.5), epochs=10, decay=0.01),
    "cnn": sequence(WordCnn, 192, epochs=6),
    "transformer": sequence(Transformer, 64, epochs=8),
}
TABLE = {
    "linear": linear(as_they_are),
    "relu": perceptron(as_they_are, mlp(128, 128), epochs=30),
    "gelu-layernorm": perceptron(as_they_are, mlp(128, 128, act="GELU", norm="LayerNorm"), epochs=30),
}
OF_KIND: dict[str, dict[str, Callable[[Task], Trained]]] = {
    "words": {
        **TEXT,
        "vectors-linear": linear(mean_vectors),
        "vectors-gelu-layernorm": perceptron(mean_vectors, mlp(256, act="GELU", norm="LayerNorm"), epochs=20),
    },
    "characters": TEXT,
    "numbers": TABLE,
    "digits": {
        "linear": linear(as_they_are),
        "sklearn-relu": sklearn_mlp(100, act="relu"),
        "sklearn-tanh": sklearn_mlp(64, 64, act="tanh"),
    },
    "images": {
        "cnn": perceptron(as_they_are, image_cnn, epochs=6),
        "relu-batchnorm": perceptron(as_they_are, mlp(256, 256, norm="BatchNorm1d"), epochs=15),
    },
    "sentences": {
        "use-linear": linear(as_they_are),
        "use-relu": perceptron(as_they_are, mlp(256), epochs=20),
    },
}
ONE_SEED = ("linear", "cnn", "transformer")  # how the names of those end that are trained once
