"""Score the networks of this study: ``python -m studies.layers.run NETWORKS --out OUT``.

Networks are files that ``networks.py`` or the study of strangers wrote, or names of the zoo with their training set
(``densenet-bc-100_cifar10``). One JSON file is written for each; together they are "networks" of
record.json, from which ``tables.py`` writes the tables.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

import pnml
from pnml.metrics import evaluate
from pnml_bench import zoo
from pnml_bench.data import load
from pnml_bench.environment import git_state
from pnml_bench.model_under_test import full_precision
from studies.layers.networks import read
from studies.layers.peers import PEERS, Known, Rows, several_layers
from studies.strangers import run as strangers

if TYPE_CHECKING:
    from pnml.pytorch.guard import Guard
    from pnml_bench.zoo import Network
    from studies.strangers.run import Stranger

NEAR = {"cifar10": "cifar100", "cifar100": "cifar10", "cifar10-even": "cifar10-odd"}
FAR = ("tinyimagenet_crop", "tinyimagenet_resize", "isun", "uniform", "gaussian")
BATCH = 500


def ood_sets(ind: str) -> dict[str, str]:
    """Return the names of a network's OOD sets, each "near" or "far"."""
    near = {NEAR[ind]: "near"} if ind in NEAR else {}
    others = ("cifar10", "cifar100") if ind == "svhn" else ("svhn",)
    return near | dict.fromkeys((*others, *FAR), "far")


def open_network(name: str, device: torch.device) -> tuple[Network | Stranger, str]:
    """Return a network of ``networks.py``, of the strangers or of the zoo, and the name of its training set."""
    path = Path(name)
    if strangers.is_stranger(path):
        stranger, ind = strangers.read(path)
        return stranger.to(device).eval(), ind
    network = read(path) if path.stem.count("_") == 2 else zoo.load(name)  # the former have a seed
    return network.to(device).eval(), path.stem.split("_")[1]


class Images:
    """Runs a guarded network on image sets."""

    def __init__(self, guard: Guard, network: Any, device: torch.device, limit: int | None) -> None:
        self.guard, self.network, self.device, self.limit = guard, network, device, limit

    def rows(self, name: str, split: str, limit: int | None = None) -> tuple[Rows, Tensor | None]:
        images = load(name, split=split, limit=min(x for x in (limit, self.limit, 10**9) if x is not None))
        parts: list[Any] = []
        with self.guard.eval_no_grad(), full_precision():
            for batch in images.batches(BATCH, self.device):
                x = self.network.normalise(batch)
                if self.guard.head_name is None:
                    self.guard.find((x,), {})
                parts.append(self.guard.run((x,), {}))
        features = [torch.cat(column) for column in zip(*(part.features for part in parts), strict=True)]
        labels = None if images.labels is None else torch.from_numpy(images.labels).to(self.device)
        return Rows(torch.cat([p.logits for p in parts]), torch.cat([p.embeddings for p in parts]), features), labels


def measure(name: str, device: torch.device, limit: int | None, ood_limit: int | None) -> dict[str, Any]:
    """Return the AUROC and TNR of every method on every set of one network."""
    began = perf_counter()
    network, ind = open_network(name, device)
    guard = pnml.guard(network)
    images = Images(guard, network, device, limit)
    train, labels = images.rows(ind, "train")
    test, truth = images.rows(ind, "test")
    assert labels is not None and truth is not None  # noqa: S101, PT018 - sets to train on have labels
    head = guard.head.weight.detach(), guard.head.bias.detach()
    deep = pnml.Detector(*head).fit(train.embeddings, features=train.features)
    last = pnml.Detector(*head).fit(train.embeddings)
    paper = pnml.Detector(*head, embedding_scale="paper").fit(train.embeddings)
    known = Known(train, labels, *head)
    methods = {
        "pnml": lambda x: deep.score(x.embeddings, features=x.features),
        "pnml-last": lambda x: last.score(x.embeddings),
        "pnml-paper": lambda x: paper.score(x.embeddings),
    }
    for peers in (*PEERS, several_layers):
        methods |= peers(known)
    with full_precision():
        inside = {method: score(test).cpu() for method, score in methods.items()}
        found: dict[str, dict[str, list[float]]] = {method: {} for method in methods}
        for ood in ood_sets(ind):
            rows, _ = images.rows(ood, "test", ood_limit)
            for method, score in methods.items():
                metrics = evaluate(inside[method], score(rows).cpu())
                found[method][ood] = [round(float(metrics.auroc), 3), round(float(metrics.tnr_at_tpr95), 3)]
    accuracy = 100 * float((test.logits.argmax(dim=1) == truth).float().mean())
    return {
        "network": Path(name).stem,
        "ind": ind,
        "accuracy": round(accuracy, 2),
        "layers": list(guard.layers),
        "rows": {"train": len(labels), "test": len(truth)},
        "seconds": round(perf_counter() - began, 1),
        "auroc_tnr": found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "networks", nargs="+", help="files of networks.py or of the study of strangers, or names of the zoo"
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--limit", type=int, help="at most this many images of each set, for a try")
    parser.add_argument("--commit", help="of the code, where it runs without its repository")
    parser.add_argument("--ood-limit", type=int, default=5000)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    commit, dirty = (args.commit, False) if args.commit else git_state()
    for name in args.networks:
        path = args.out / f"{Path(name).stem}.json"
        if path.exists():
            continue
        record = measure(name, torch.device(args.device), args.limit, args.ood_limit)
        path.write_text(json.dumps(record | {"commit": commit, "dirty": dirty}) + "\n")
        print(f"{record['network']}: {record['seconds']} s", flush=True)


if __name__ == "__main__":
    main()
