"""Write what the study of scales needs of one network: embeddings of its sets and the statistics of its training set.

``python research/embeddings.py --checkpoint densenet-bc-100_cifar10 --ind cifar10 --out embeddings``

The file holds float32 rows, evenly spaced over each set: ``train`` and ``test`` with their labels, ``ood/NAME``, the
head's ``weight`` and ``bias``, and, of the *whole* training set in float64, Σxxᵀ and Σx of the embeddings as they are
(``raw``) and scaled to norm 1 (``unit``). Float32 matters: directions with 1e-10 of the largest eigenvalue carry
signal.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import normalize

from pnml.backend.files import atomic_path
from pnml_bench import zoo
from pnml_bench.data import load
from pnml_bench.methods.view import View
from pnml_bench.model_under_test import full_precision

if TYPE_CHECKING:
    from pnml_bench.zoo import Network

ROWS = {"train": 6000, "test": 3000, "ood": 2500}
OOD = {
    "cifar10": ("cifar100", "svhn", "tinyimagenet_crop", "tinyimagenet_resize", "uniform", "gaussian"),
    "cifar100": ("cifar10", "svhn", "tinyimagenet_crop", "tinyimagenet_resize", "uniform", "gaussian"),
    "svhn": ("cifar10", "cifar100", "tinyimagenet_crop", "tinyimagenet_resize", "uniform", "gaussian"),
}


def write(network: Network, name: str, ind: str, path: Path, limit: int | None = None) -> str:
    """Write the embeddings of a network's sets, of at most ``limit`` images each, and give a line on them."""

    def embed(of: str, split: str) -> tuple[Tensor, Tensor, float]:
        view = View(network, load(of, split=split, limit=limit), batch_size=500)
        known = view.images.labels
        labels = torch.zeros(len(view), dtype=torch.int64) if known is None else torch.from_numpy(known)
        return view.embeddings, labels, 100 * float((view.logits.argmax(1).cpu() == labels).float().mean())

    tensors = {"weight": network.head.weight.detach(), "bias": network.head.bias.detach()}
    with full_precision(), sdpa_kernel(SDPBackend.MATH):
        x, labels, train_accuracy = embed(ind, "train")
        counts = {"train": len(x)}
        for kind, rows in (("raw", x.double()), ("unit", normalize(x.double(), dim=1))):
            tensors[f"correlation/{kind}"], tensors[f"sum/{kind}"] = rows.T @ rows, rows.sum(0)
        tensors["norms"] = norms = x.norm(dim=1)
        tensors["train"], tensors["train_labels"] = evenly(x, ROWS["train"]), evenly(labels, ROWS["train"])
        x, labels, accuracy = embed(ind, "test")
        tensors["test"], tensors["test_labels"] = evenly(x, ROWS["test"]), evenly(labels, ROWS["test"])
        for ood in OOD[ind]:
            tensors[f"ood/{ood}"] = evenly(embed(ood, "test")[0], ROWS["ood"])
    about = {"checkpoint": name, "ind": ind, "accuracy": str(accuracy), "counts": json.dumps(counts)}
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_path(path) as fresh:
        save_file({key: tensor.cpu().contiguous() for key, tensor in tensors.items()}, fresh, metadata=about)
    return f"right: train {train_accuracy:.2f} %, test {accuracy:.2f} %; norms {norms.min():.2f} to {norms.max():.2f}"


def evenly(x: Tensor, rows: int) -> Tensor:
    return x[torch.linspace(0, len(x) - 1, min(rows, len(x))).long()]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, help="a name of the zoo, or a file that pnml train wrote")
    parser.add_argument("--ind", required=True, choices=sorted(OOD))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    network = zoo.load(args.checkpoint).eval().to(args.device)
    path = args.out / f"{Path(args.checkpoint).stem}.safetensors"
    print(f"{args.checkpoint}: {write(network, args.checkpoint, args.ind, path)}")


if __name__ == "__main__":
    main()
