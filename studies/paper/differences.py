"""Change one thing at a time that may explain why our numbers differ from the paper's, on its own DenseNets.

    python -m studies.paper.differences --ind cifar10 --out differences_cifar10.json

* ``cut``: eigenvalues of the correlation below this share of the largest are left out, without a branch for embeddings
  outside of the span; "ours" and "published" are the two arithmetics of ``pnml bench``.
* ``fit``: the training set is cut to 20,000 images.
* ``resize``: the filter that TinyImageNet is made smaller with.
* ``svhn``: the digits are shifted by a pixel or enlarged by a fifteenth, as another way of cropping them would.
* ``gram``: Gram+pNML with deviations of other samples (grouped by class in batches of 2,048, as in the published code),
  with its standard deviations (unbiased; 0 becomes 1), and with both.

Every entry holds AUROC and TNR at TPR 95 %, in percent: [AUROC, TNR]. ``cells`` lists the same for each cell of
the paper that an experiment bears on: the paper's number of a method with pNML, ours, and ours with the change.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import normalize

from pnml import Detector
from pnml.backend.files import write_text
from pnml.core import theorem
from pnml.core.subspace import xtg
from pnml.metrics import average, evaluate
from pnml_bench import zoo
from pnml_bench.data import load
from pnml_bench.data.folder import read_folder
from pnml_bench.data.selection import Selection
from pnml_bench.data.source import data_folders
from pnml_bench.environment import choose_device
from pnml_bench.methods import PublishedDetector, View
from pnml_bench.methods.gram import Gram, validation_splits
from pnml_bench.methods.logit_scores import msp_score
from pnml_bench.model_under_test import full_precision
from pnml_bench.paper import REMADE, paper_cells
from pnml_bench.results import start_run

if TYPE_CHECKING:
    from collections.abc import Callable

    from torch import Tensor

    from pnml.metrics import Metrics
    from pnml_bench.data import ImageSet

MODEL = "densenet-bc-100"
CUTS = (1e-15, 1e-14, 1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5)
FILTERS = ("NEAREST", "BOX", "BILINEAR", "HAMMING", "BICUBIC", "LANCZOS")
OOD = {
    "cifar10": ("svhn", "isun", "tinyimagenet_crop", "tinyimagenet_resize_nearest", "cifar100"),
    "cifar100": ("svhn", "isun", "tinyimagenet_crop", "tinyimagenet_resize_nearest", "cifar10"),
    "svhn": ("cifar10", "cifar100", "isun", "tinyimagenet_crop", "tinyimagenet_resize_nearest"),
}
FEW_DIGITS = 20_000  # what older records were fitted on
GROUPED = 2048  # images in a batch of the published code


class Experiment:
    """One network of the paper, its training set and its test set."""

    def __init__(self, ind: str, device: torch.device, limit: int | None) -> None:
        self.ind_name, self.limit, self.device = ind, limit, device
        self.network = zoo.load(f"{MODEL}_{ind}").to(device)
        self.train, self.ind = self.view(load(ind, split="train", limit=limit)), self.view(load(ind, limit=limit))
        head = self.network.head
        self.weight, self.bias = head.weight.detach(), head.bias.detach()
        self.paper = Detector(self.weight, self.bias, embedding_scale="paper").fit(self.train.embeddings)
        self.published = PublishedDetector(self.weight, self.bias, self.train.embeddings)
        self.oods = {name: self.view(load(name, limit=limit)) for name in OOD[ind]}

    def view(self, images: ImageSet) -> View:
        return View(self.network, images, batch_size=500 if self.device.type == "cuda" else 50)

    def log_p(self, view: View) -> Tensor:
        """Return the log-probabilities (n, C) of embeddings of norm 1."""
        unit = normalize(view.embeddings, dim=1).double()
        return (unit @ self.weight.double().T + self.bias.double()).log_softmax(dim=1)

    def cut(self) -> dict[str, Any]:
        unit = normalize(self.train.embeddings, dim=1).double()
        values, vectors = torch.linalg.eigh(unit.T @ unit)

        def by_cut(share: float) -> Callable[[View], Tensor]:
            kept = values > share * values[-1]
            whitening = vectors[:, kept] / values[kept].sqrt()

            def score(view: View) -> Tensor:
                h = (normalize(view.embeddings, dim=1).double() @ whitening).square().sum(dim=1)
                return theorem.regret(self.log_p(view), xtg(h), log=True)  # type: ignore[no-any-return]

            return score

        scores = {f"{share:.0e}": by_cut(share) for share in CUTS}
        scores |= {"ours": self._regret(self.paper), "published": self._regret(self.published)}
        ranks = {f"{share:.0e}": int((values > share * values[-1]).sum()) for share in CUTS}
        return {"rank": ranks, **{name: self.against(score, self.oods) for name, score in scores.items()}}

    def fit(self) -> dict[str, Any]:
        few = self.view(load(self.ind_name, split="train", limit=min(FEW_DIGITS, self.limit or FEW_DIGITS)))
        detectors = {
            "ours": Detector(self.weight, self.bias, embedding_scale="paper").fit(few.embeddings),
            "published": PublishedDetector(self.weight, self.bias, few.embeddings),
        }
        return {name: self.against(self._regret(one), self.oods) for name, one in detectors.items()}

    def resize(self) -> dict[str, Any]:
        (folder,) = [base / "tiny-imagenet-200" for base in data_folders() if (base / "tiny-imagenet-200").exists()][:1]
        found = {}
        for name in FILTERS:
            resampling = Image.Resampling[name]
            contents = read_folder(
                folder / "test",
                Selection(limit=self.limit),
                transform=lambda image, kind=resampling: image.resize((32, 32), kind),
            )
            view = self.view(replace(self.ind.images, images=contents.images, labels=None, note=name, name=name))
            found[name.lower()] = self._all(self.ind, view)
        return found

    def svhn(self) -> dict[str, Any]:
        digits = np.asarray(load("svhn", limit=self.limit).images)
        padded = np.pad(digits, ((0, 0), (1, 1), (1, 1), (0, 0)), mode="reflect")
        enlarged = [
            np.asarray(Image.fromarray(one[1:-1, 1:-1]).resize((32, 32), Image.Resampling.BILINEAR)) for one in digits
        ]
        changed = {
            "as it is": digits,
            "one pixel down and right": padded[:, :-2, :-2],
            "one pixel up and left": padded[:, 2:, 2:],
            "enlarged by a fifteenth": np.stack(enlarged),
        }
        views = {
            name: self.view(replace(self.ind.images, images=np.ascontiguousarray(images), labels=None))
            for name, images in changed.items()
        }
        if self.ind_name != "svhn":
            return {name: self._all(self.ind, view) for name, view in views.items()}
        return {name: {ood: self._all(view, other) for ood, other in self.oods.items()} for name, view in views.items()}

    def gram(self) -> dict[str, Any]:
        gram = Gram(compiled=self.device.type == "cuda").fit(self.network, self.train.inputs("Gram"))
        views = {"": self.ind, **self.oods}
        deviations = {name: gram.deviations(self.network, view.inputs("Gram")) for name, view in views.items()}
        facts = {
            name: (self.log_p(view), self.paper.subspace.leverage(normalize(view.embeddings, dim=1)).double())
            for name, view in views.items()
        }
        found: dict[str, Any] = {}
        for label, mispaired, theirs in (
            ("ours", False, False),
            ("mispaired", True, False),
            ("unbiased, 0 becomes 1", False, True),
            ("both", True, True),
        ):
            rows = {
                name: values[grouped(views[name].logits.argmax(dim=1))] if mispaired else values
                for name, values in deviations.items()
            }
            found[label] = {ood: self._gram_trials(rows, facts, ood, theirs=theirs) for ood in self.oods}
        return found

    def _gram_trials(self, rows: dict[str, Tensor], facts: dict[str, Any], ood: str, *, theirs: bool) -> list[float]:
        results = []
        for held_out, rest in validation_splits(len(self.ind)):
            spread = rows[""][held_out].double().std(dim=0, correction=int(theirs))
            spread = spread.masked_fill(spread == 0, 1.0) if theirs else spread.clamp_min(1e-7)
            inside, outside = (
                scaled_regret(log_p, h, (one.double() / spread).mean(dim=1))
                for one, (log_p, h) in ((rows[""], facts[""]), (rows[ood], facts[ood]))
            )
            results.append(evaluate(inside[rest], outside))
        return numbers(average(results))

    def _all(self, ind: View, ood: View) -> dict[str, list[float]]:
        scores = {
            "baseline": lambda view: msp_score(view.logits),
            "ours": self._regret(self.paper),
            "published": self._regret(self.published),
        }
        return {name: numbers(evaluate(score(ind), score(ood))) for name, score in scores.items()}

    def against(self, score: Callable[[View], Tensor], oods: dict[str, View]) -> dict[str, list[float]]:
        inside = score(self.ind)
        return {name: numbers(evaluate(inside, score(view))) for name, view in oods.items()}

    def _regret(self, detector: Detector | PublishedDetector) -> Callable[[View], Tensor]:
        return lambda view: detector.score(view.embeddings)


def changes(record: dict[str, Any]) -> list[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Return every change: what it is, the method it bears on, and [AUROC, TNR] of each OOD set without and with it."""
    is_svhn = record["ind"] == "svhn"
    ours, gram = record["cut"]["ours"], record["gram"]["ours"]
    resized = {name: {"tinyimagenet_resize_nearest": one["ours"]} for name, one in record["resize"].items()}
    digits = {
        name: {ood: one["ours"] for ood, one in (values.items() if is_svhn else (("svhn", values),))}
        for name, values in record["svhn"].items()
    }
    found = [
        (f"eigenvalue cut: {name}", "baseline", ours, one) for name, one in record["cut"].items() if name != "rank"
    ]
    found += [(f"{FEW_DIGITS:,} training images: {name}", "baseline", ours, one) for name, one in record["fit"].items()]
    found += [(f"resized by {name}", "baseline", resized["nearest"], one) for name, one in resized.items()]
    found += [(f"digits {name}", "baseline", digits["as it is"], one) for name, one in digits.items()]
    return found + [(f"Gram: {name}", "gram", gram, one) for name, one in record["gram"].items()]


def as_cells(record: dict[str, Any]) -> list[dict[str, Any]]:
    """Return one entry for each change, OOD set and metric: the paper's number, ours, and ours with the change."""
    back = {new: old for old, new in REMADE.items()}
    paper = {(*cell.key, cell.metric): cell.plus_pnml for cell in paper_cells()}
    found = []
    for experiment, method, ours, changed in changes(record):
        for ood, values in changed.items():
            for place, metric in enumerate(("auroc", "tnr_at_tpr95")):
                printed = paper.get((MODEL, record["ind"], back.get(ood, ood), method, metric))
                if printed is not None and ours is not changed:
                    names = {"model": MODEL, "ind": record["ind"], "ood": ood, "method": method, "metric": metric}
                    values_of = {"paper": printed, "ours": ours[ood][place], "with_change": values[place]}
                    found.append({"experiment": experiment, **names, **values_of})
    return found


def scaled_regret(log_p: Tensor, leverage: Tensor, scale: Tensor) -> Tensor:
    scaled = torch.where(scale > 0, scale * leverage, 0.0)
    regret: Tensor = theorem.regret(log_p, xtg(scaled), log=True)
    return regret


def grouped(predicted: Tensor) -> Tensor:
    """Return the rows in the order of the published code: by class, then as they came, within every batch."""
    parts = [start + part.sort(stable=True).indices for start, part in zip_starts(predicted)]
    return torch.cat(parts)


def zip_starts(predicted: Tensor) -> list[tuple[int, Tensor]]:
    return [(number * GROUPED, part) for number, part in enumerate(predicted.split(GROUPED))]


def numbers(metrics: Metrics) -> list[float]:
    return [round(metrics.auroc, 3), round(metrics.tnr_at_tpr95, 3)]


def write(record: dict[str, Any], path: Path) -> None:
    write_text(path, json.dumps(record) + "\n")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ind", required=True, choices=list(OOD))
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--device", default="auto")
    parser.add_argument("--limit", type=int)
    args = parser.parse_args()
    device = choose_device(args.device)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    record: dict[str, Any] = {"ind": args.ind, "limit": args.limit}
    record["run"] = asdict(start_run(f"python -m studies.paper.differences --ind {args.ind}", name))
    with full_precision():
        experiment = Experiment(args.ind, device, args.limit)
        for part in (experiment.cut, experiment.fit, experiment.resize, experiment.svhn, experiment.gram):
            record[part.__name__] = part()
            write(record, args.out)
            print(f"{args.ind}: {part.__name__} done", flush=True)
    record["cells"] = as_cells(record)
    write(record, args.out)


if __name__ == "__main__":
    main()
