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

import torch
from safetensors.torch import save_file

from pnml import zoo
from pnml.bench.subject import full_precision
from pnml.data import load
from pnml.methods.view import View

ROWS = {"train": 6000, "test": 3000, "ood": 2500}
OOD = {
    "cifar10": ("cifar100", "svhn", "tinyimagenet_crop", "tinyimagenet_resize", "uniform", "gaussian"),
    "cifar100": ("cifar10", "svhn", "tinyimagenet_crop", "tinyimagenet_resize", "uniform", "gaussian"),
    "svhn": ("cifar10", "cifar100", "tinyimagenet_crop", "tinyimagenet_resize", "uniform", "gaussian"),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, help="a name of the zoo, or a file that pnml train wrote")
    parser.add_argument("--ind", required=True, choices=sorted(OOD))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    network = zoo.load(args.checkpoint).eval().to(args.device)

    def embed(name: str, split: str) -> tuple[torch.Tensor, View]:
        view = View(network, load(name, split=split), batch_size=500)
        return view.embeddings, view

    tensors = {"weight": network.head.weight.detach(), "bias": network.head.bias.detach()}
    with full_precision():
        x, view = embed(args.ind, "train")
        counts = {"train": len(x)}
        for kind, rows in (("raw", x.double()), ("unit", torch.nn.functional.normalize(x.double(), dim=1))):
            tensors[f"correlation/{kind}"], tensors[f"sum/{kind}"] = rows.T @ rows, rows.sum(0)
        tensors["norms"] = x.norm(dim=1)
        keep = torch.linspace(0, len(x) - 1, ROWS["train"]).long()
        tensors["train"], tensors["train_labels"] = x[keep], torch.from_numpy(view.images.labels)[keep]
        x, view = embed(args.ind, "test")
        accuracy = 100 * float((view.logits.argmax(1).cpu().numpy() == view.images.labels).mean())
        keep = torch.linspace(0, len(x) - 1, ROWS["test"]).long()
        tensors["test"], tensors["test_labels"] = x[keep], torch.from_numpy(view.images.labels)[keep]
        for name in OOD[args.ind]:
            x, _ = embed(name, "test")
            tensors[f"ood/{name}"] = x[torch.linspace(0, len(x) - 1, ROWS["ood"]).long()]
    args.out.mkdir(parents=True, exist_ok=True)
    about = {"checkpoint": args.checkpoint, "ind": args.ind, "accuracy": str(accuracy), "counts": json.dumps(counts)}
    held = {name: tensor.cpu().contiguous() for name, tensor in tensors.items()}
    save_file(held, args.out / f"{Path(args.checkpoint).stem}.safetensors", metadata=about)
    print(f"{args.checkpoint}: {accuracy:.2f} % of the test images are classified rightly")


if __name__ == "__main__":
    main()
