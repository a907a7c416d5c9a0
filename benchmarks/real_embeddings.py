"""Write the embeddings of a real network to a file, for the other programs to measure on.

    python benchmarks/real_embeddings.py --checkpoint densenet-bc-100_cifar10 --ood svhn --limit 5000 --out FOLDER

The file FOLDER/CHECKPOINT.safetensors holds the head (``weight``, ``bias``), ``train``, ``test`` and ``ood.NAME``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors.numpy import save_file

from pnml.backend.files import atomic_path
from pnml_bench import zoo
from pnml_bench.data import load
from pnml_bench.methods.view import View
from pnml_bench.model_under_test import show

if TYPE_CHECKING:
    import numpy as np


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkpoint", required=True, help="a name of pnml_bench.zoo.CHECKPOINTS")
    parser.add_argument("--ood", required=True, help="image sets with commas between")
    parser.add_argument("--limit", type=int, help="at most so many images of every set")
    parser.add_argument("--out", type=Path, required=True, help="the folder to write into")
    options = parser.parse_args()
    network = zoo.load(options.checkpoint)
    trained_on = zoo.CHECKPOINTS[options.checkpoint].trained_on
    sets = {"train": (trained_on, "train"), "test": (trained_on, "test")}
    sets |= {f"ood.{name}": (name, "test") for name in options.ood.split(",")}
    arrays: dict[str, np.ndarray[Any, Any]] = {
        "weight": network.head.weight.detach().numpy(),
        "bias": network.head.bias.detach().numpy(),
    }
    for name, (images, split) in sets.items():
        view = View(network, load(images, split=split, limit=options.limit), batch_size=100, track=show)
        arrays[name] = view.embeddings.numpy()
    options.out.mkdir(parents=True, exist_ok=True)
    with atomic_path(options.out / f"{options.checkpoint}.safetensors") as partial:
        save_file(arrays, partial)


if __name__ == "__main__":
    main()
