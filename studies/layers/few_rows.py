"""Fit on few training rows: ``python -m studies.layers.few_rows NETWORKS``, networks as for ``run.py``.

Every detector is fitted on the same random training images, 100 to 10,000 of them, and scored on 1,000 test images and
400 of each OOD set. The mean AUROC over the sets is put into record.json.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING

import torch

import pnml
from pnml.metrics import auroc
from pnml_bench.environment import git_state
from studies.layers.run import Images, ood_sets, open_network
from studies.records import write_record

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from studies.layers.peers import Rows

RECORD = Path(__file__).parent / "record.json"
COUNTS = (100, 200, 500, 1000, 3000, 10_000)


def measure(name: str, device: torch.device) -> dict[str, dict[str, float]]:
    """Return the mean AUROC of every method for every number of rows."""
    network, ind = open_network(name, device)
    guard = pnml.guard(network)
    images = Images(guard, network, device, None)
    train, _ = images.rows(ind, "train", max(COUNTS))
    test, _ = images.rows(ind, "test", 1000)
    oods = [images.rows(ood, "test", 400)[0] for ood in ood_sets(ind)]
    head = guard.head.weight.detach(), guard.head.bias.detach()

    def mean(score: Callable[[Rows], Tensor]) -> float:
        inside = score(test)
        return round(fmean(auroc(inside, score(ood)) for ood in oods), 2)

    order = torch.randperm(len(train.logits), generator=torch.Generator().manual_seed(0))
    found = {"msp": {"any": mean(lambda x: -x.logits.softmax(dim=1).max(dim=1).values)}}
    for count in COUNTS:
        few = order[:count].to(device)
        deep = pnml.Detector(*head).fit(train.embeddings[few], features=[x[few] for x in train.features])
        last = pnml.Detector(*head).fit(train.embeddings[few])
        of_deep = mean(lambda x: deep.score(x.embeddings, features=x.features))  # noqa: B023 - used at once
        of_last = mean(lambda x: last.score(x.embeddings))  # noqa: B023
        found[f"{count}"] = {"pnml": of_deep, "pnml-last": of_last}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("networks", nargs="+", help="files of networks.py, or names of the zoo")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    args = parser.parse_args()
    commit, dirty = git_state()
    found = {}
    for name in args.networks:
        found[Path(name).stem] = measure(name, torch.device(args.device))
        print(Path(name).stem, found[Path(name).stem], flush=True)
    record = json.loads(RECORD.read_text(encoding="utf-8"))
    write_record(RECORD, record | {"few_rows": {"commit": commit, "dirty": dirty, "networks": found}})


if __name__ == "__main__":
    main()
