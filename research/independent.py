"""Measure every method on the independent tasks of independent.md.

``python research/independent.py train --data data --out embeddings`` trains the networks and keeps their embeddings, a
file for each task, network and seed, in the layout of ``embeddings.py``; OOD sets are ``ood/near/NAME`` and
``ood/far/NAME``. A file that exists is not made again.

``python research/independent.py compare embeddings/*.safetensors`` adds networks that independent.json lacks, and
writes the tables of independent.md.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeAlias

import independent_corpora as corpora
import numpy as np
import torch
from independent_tasks import TASKS, TASKS_AND_SENTENCES
from leaderboard import Head, Stored
from records import replace_table, write_record
from safetensors import safe_open
from safetensors.numpy import save_file
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from torch import Tensor, nn

from pnml import Detector
from pnml.metrics import auroc
from pnml_bench.environment import environment
from pnml_bench.methods import ALL_METHODS, GROUPS, MethodFailedError
from pnml_bench.results import current_time

if TYPE_CHECKING:
    from collections.abc import Callable

    from independent_tasks import Task

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


def train_all(names: list[str], networks: list[str], out: Path) -> None:
    """Train every network that has no file yet."""
    out.mkdir(parents=True, exist_ok=True)
    for name in names:
        task = TASKS_AND_SENTENCES[name]()
        for network in networks or OF_KIND[task.kind]:
            for seed in (0,) if network.endswith(ONE_SEED) else (0, 1, 2):
                path = out / f"{name}_{network}_{seed}.safetensors"
                if not path.exists():
                    keep(path, task, network, seed)


def keep(path: Path, task: Task, network: str, seed: int) -> None:
    torch.manual_seed(seed)
    began = perf_counter()
    embed, weight, bias = OF_KIND[task.kind][network](task)
    seconds = perf_counter() - began
    sets = {"train": task.train, "test": task.test, **{f"ood/{name}": rows for name, rows in task.oods.items()}}
    held = {name: embed(rows) for name, rows in sets.items()}
    held |= {"weight": weight, "bias": bias}
    held = {name: np.ascontiguousarray(array, np.float32) for name, array in held.items()}
    accuracy = {}
    for part in ("train", "test"):
        labels = getattr(task, f"{part}_labels")
        held[f"{part}_labels"] = labels.astype(np.int64)
        accuracy[part] = 100 * float(((held[part] @ held["weight"].T + held["bias"]).argmax(1) == labels).mean())
    about = {"checkpoint": path.stem, "accuracy": str(accuracy["test"]), "train_accuracy": str(accuracy["train"])}
    save_file(held, path, metadata=about)
    print(f"{path.stem}: accuracy {accuracy['test']:.1f} (train {accuracy['train']:.1f}), {seconds:.0f} s", flush=True)


RECORD = Path(__file__).parent / "independent.json"


def compare(files: list[Path]) -> None:
    """Measure the networks that the record lacks, and write the tables."""
    held: dict[str, Any] = json.loads(RECORD.read_text(encoding="utf-8"))
    for path in files:
        if path.stem not in held["networks"]:
            held["networks"][path.stem] = measure(path)
            held |= {"date": current_time(), "versions": environment()}
            write_record(RECORD, held)
            print(path.stem, flush=True)
    found = by_network(held["networks"])
    replace_table(PAGE, "methods", each_method(found))
    replace_table(PAGE, "networks", each_network(found, held["networks"]))


def measure(path: Path) -> dict[str, Any]:
    """Return the AUROC of every method and OOD set in percent, with facts about the network."""
    with safe_open(path, "pt") as file:
        held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        about = file.metadata()
    network = Head(held["weight"], held["bias"]).eval()
    train, test = (Stored(network, held[name], held[f"{name}_labels"]) for name in ("train", "test"))
    oods = {name.removeprefix("ood/"): Stored(network, rows) for name, rows in held.items() if name.startswith("ood/")}
    detector = Detector(held["weight"], held["bias"]).fit(held["train"])
    found: dict[str, Any] = {
        "accuracy": float(about["accuracy"]),
        "train_accuracy": float(about["train_accuracy"]),
        "rows": len(train),
        "features": detector.n_features,
        "rank": detector.subspace.rank,
        "classes": detector.n_classes,
        "mean_norm": float(np.linalg.norm(held["train"].numpy(), axis=1).mean()),
        "length": detector.embedding_length,
        "auroc": {},
        "failed": {},
    }
    for name in GROUPS["peers"]:
        try:
            method = ALL_METHODS[name]()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                method.fit(train)
                inside = method.score(test)
                found["auroc"][name] = {ood: auroc(inside, method.score(view)) for ood, view in oods.items()}
        except MethodFailedError as error:  # noqa: PERF203
            found["failed"][name] = str(error).partition(" of namespace")[0]
    return found


PAGE = Path(__file__).parent / "independent.md"
AUTO, PAPER = "pnml", "pnml-paper"
OURS = (AUTO, PAPER)
NAMES = {"baseline": "MSP", AUTO: "**pNML, auto**", PAPER: "pNML, paper"}

Scores: TypeAlias = "dict[str, dict[str, float]]"
"""Of each method: near, far and the mean of both, in percent."""


def by_network(networks: dict[str, Any]) -> dict[tuple[str, str], Scores]:
    """Return the scores of every task and network, averaged over seeds; a method that failed once is left out."""
    runs: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for name, run in networks.items():
        task, network, _ = name.split("_")
        runs[task, network].append(run["auroc"])
    found = {}
    for key, of_seed in runs.items():
        methods = [method for method in of_seed[0] if all(method in run for run in of_seed)]
        found[key] = {method: near_and_far([run[method] for run in of_seed]) for method in methods}
    return found


def near_and_far(runs: list[dict[str, float]]) -> dict[str, float]:
    part = {
        kind: float(np.mean([value for run in runs for ood, value in run.items() if ood.startswith(kind)]))
        for kind in ("near", "far")
    }
    return {**part, "mean": (part["near"] + part["far"]) / 2}


def rank(scores: Scores, of: str, method: str = AUTO) -> int:
    """Return the place among the peers, 1 for the best."""
    others = [name for name in scores if name not in OURS]
    return 1 + sum(scores[name][of] > scores[method][of] for name in others)


def best_peer(scores: Scores, of: str) -> tuple[str, float]:
    name = max((name for name in scores if name not in OURS), key=lambda name: scores[name][of])
    return name, scores[name][of]


def each_network(found: dict[tuple[str, str], Scores], networks: dict[str, Any]) -> str:
    heads = ["task", "network", "accuracy", "auto: mean", "best peer", "rank", "paper: mean", "near: auto"]
    heads += ["near: MSP, Energy", "near: best peer", "far: auto", "far: paper", "far: best peer"]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for (task, network), scores in found.items():
        accuracy = np.mean([run["accuracy"] for name, run in networks.items() if name.startswith(f"{task}_{network}_")])
        best = {of: best_peer(scores, of) for of in ("mean", "near", "far")}
        shown = {of: f"{value:.1f} {NAMES.get(name, name)}" for of, (name, value) in best.items()}
        auto, paper = scores[AUTO], scores[PAPER]
        mean = f"**{auto['mean']:.1f}**" if rank(scores, "mean") == 1 else f"{auto['mean']:.1f}"
        confidence = f"{scores['baseline']['near']:.1f}, {scores['energy']['near']:.1f}"
        lines.append(
            f"| {task} | {network} | {accuracy:.1f} | {mean} | {shown['mean']} | {rank(scores, 'mean')} "
            f"| {paper['mean']:.1f} | {auto['near']:.1f} | {confidence} | {shown['near']} "
            f"| {auto['far']:.1f} | {paper['far']:.1f} | {shown['far']} |"
        )
    return "\n".join(lines) + "\n"


def each_method(found: dict[tuple[str, str], Scores]) -> str:
    """The mean over the networks of every task, then over tasks: no task counts for more than another."""
    tasks = list(dict.fromkeys(task for task, _ in found))
    methods = list(dict.fromkeys(method for scores in found.values() for method in scores))

    def mean(method: str, of: str, task: str) -> float:
        values = [scores[method][of] for (name, _), scores in found.items() if name == task and method in scores]
        return float(np.mean(values)) if values else float("nan")

    rows = []
    for method in methods:
        total = {of: float(np.nanmean([mean(method, of, task) for task in tasks])) for of in ("near", "far", "mean")}
        places = [
            1 + sum(other["mean"] > s[method]["mean"] for other in s.values()) for s in found.values() if method in s
        ]
        missing = len(found) - len(places)
        cells = [f"{mean(method, 'mean', task):.1f}" for task in tasks]
        note = f" (fails on {missing})" if missing else ""
        rows.append(
            (
                -total["mean"],
                [
                    NAMES.get(method, method) + note,
                    *(f"{total[of]:.1f}" for of in total),
                    f"{np.mean(places):.1f}",
                    f"{sum(p == 1 for p in places)}",
                    *cells,
                ],
            )
        )
    heads = ["method", "near", "far", "mean", "mean rank", "first", *tasks]
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    lines += ["| " + " | ".join(cells) + " |" for _, cells in sorted(rows)]
    return "\n".join(lines) + "\n"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    train = commands.add_parser("train")
    train.add_argument("tasks", nargs="*", default=list(TASKS), help="these tasks only, or NAME-sentences")
    train.add_argument("--data", type=Path, required=True, help="the folder that independent_corpora.py checks")
    train.add_argument("--out", type=Path, required=True)
    train.add_argument("--networks", nargs="+", default=[], help="these networks only")
    commands.add_parser("compare").add_argument("files", nargs="+", type=Path)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.command == "train":
        corpora.DATA = args.data
        train_all(args.tasks, args.networks, args.out)
    else:
        compare(args.files)


if __name__ == "__main__":
    main()
