"""The numbers of the guide to the other uses of the regret: refusing, calibration, labelling, adversarial images.

Example:
  python -m studies.uses.run --network resnet-20_cifar10.safetensors --out studies/uses/record.json
  python -m studies.uses.pictures studies/uses/record.json --out out/figures
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from pnml import Detector
from pnml.backend.progress import track
from pnml.core.detector import FewRowsWarning
from pnml.core.scaling import EMBEDDING_SCALES
from pnml.metrics import auroc
from pnml.pytorch.recording import record_layers
from pnml.uses import calibration_error, selective
from pnml.uses.adversarial import NormalisingModel, fgsm, pgd
from pnml_bench import data, zoo
from pnml_bench.environment import environment, git_state
from pnml_bench.methods.logit_scores import msp_score
from pnml_bench.methods.view import View, concatenate, forward
from pnml_bench.model_under_test import show
from studies.records import write_record
from studies.uses.labelling import labelling

if TYPE_CHECKING:
    from torch import Tensor

    from pnml import Result
    from pnml.core.scaling import EmbeddingScale
    from pnml.pytorch.contract import Layer
    from pnml_bench.zoo import Network

RISKS = (0.01, 0.02, 0.05)
EPSILONS = (2, 8)  # of 255
Table = dict[str, Any]


def main() -> None:
    args = parse()
    warnings.simplefilter("ignore", FewRowsWarning)  # two settings of labelling are there to show what it means
    began = time.perf_counter()
    network = zoo.load(args.network)
    test = View(network, data.load("cifar10", limit=args.test), track=show)
    train = View(network, data.load("cifar10", split="train", limit=args.train), track=show)
    layers = train.layers
    detectors = {scale: fitted(see(train, layers), network, scale) for scale in args.embedding_scale}
    known = see(test, layers)
    results = {
        scale: detector(known.embeddings, features=known.features_for(detector))
        for scale, detector in detectors.items()
    }
    found = {
        "selective": refusing(detectors, test, layers, args.strangers),
        "calibration": calibration(results, np.asarray(test.images.labels)),
        "adversarial": adversarial(network, detectors, layers, args.attacked),
        "acquisition": labelling(args.foreign, args.embedding_scale, args.pool, args.judged, args.seeds),
    }
    commit, dirty = git_state()
    record = {
        "command": command(args),
        "commit": commit,
        "dirty": dirty,
        "machine": {**environment(), "cores": os.cpu_count(), "threads": torch.get_num_threads()},
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "seconds": round(time.perf_counter() - began),
        "network": Path(args.network).stem,
        "counts": {"train": len(train), "test": len(test), "features": network.head.in_features},
        "layers": [str(layer) for layer in layers],
        "median_xtg": {scale: float(result.xtg.median()) for scale, result in results.items()},
        **found,
    }
    if args.out is None:
        print(json.dumps(rounded(record), indent=1))
    else:
        write_record(args.out, rounded(record))


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", required=True, help="of CIFAR-10, a name of the zoo or a file; best a small one")
    parser.add_argument(
        "--foreign", default="densenet-bc-100_cifar100", help="one that never saw CIFAR-10's labels, for labelling"
    )
    parser.add_argument("--embedding-scale", nargs="+", choices=EMBEDDING_SCALES, default=list(EMBEDDING_SCALES))
    parser.add_argument("--train", type=int, default=10_000, help="training images to fit on")
    parser.add_argument("--test", type=int, default=10_000, help="test images to refuse and to calibrate on")
    parser.add_argument("--strangers", type=int, default=2_000, help="images of other sets, to refuse too")
    parser.add_argument("--attacked", type=int, default=500, help="test images to attack")
    parser.add_argument("--pool", type=int, default=2_000, help="test images to choose labels from")
    parser.add_argument("--judged", type=int, default=1_000, help="other test images to judge the labelling by")
    parser.add_argument("--seeds", type=int, default=10, help="how often labelling is simulated")
    parser.add_argument("--out", type=Path, help="the JSON file to write; printed when left out")
    return parser.parse_args()


class Seen(NamedTuple):
    """What a network computed of images: embeddings, logits and the features of earlier layers."""

    embeddings: Tensor
    logits: Tensor
    features: list[Tensor]

    def features_for(self, detector: Detector) -> list[Tensor] | None:
        """Return the features if a detector was fitted with them."""
        return self.features if detector.feature_widths else None


def see(view: View, layers: tuple[Layer, ...]) -> Seen:
    features = view.features(layers)
    return Seen(*view.outputs, features)


def fitted(train: Seen, network: Network, scale: EmbeddingScale) -> Detector:
    """Return a detector as the guard fits it: with features of earlier layers for "auto", without for others."""
    head, features = network.head, train.features if scale == "auto" else None
    return Detector(head.weight, head.bias, embedding_scale=scale).fit(train.embeddings, features=features)


def scores_of(detectors: dict[str, Detector], seen: Seen) -> dict[str, Tensor]:
    """Return 1 - the largest probability, and the regret at each scale."""
    regrets = {
        f"regret, {scale}": detector.score(seen.embeddings, features=seen.features_for(detector))
        for scale, detector in detectors.items()
    }
    return {"1 - largest probability": msp_score(seen.logits), **regrets}


def refusing(detectors: dict[str, Detector], test: View, layers: tuple[Layer, ...], strangers: int) -> Table:
    """Refuse test images alone, then among images of no class the network knows, whose every answer is wrong."""
    wrong = test.logits.argmax(dim=1).numpy() != test.images.labels
    mine = scores_of(detectors, see(test, layers))
    table = {"CIFAR-10": risks(mine, wrong)}
    for name, title in (("svhn", "SVHN"), ("cifar100", "CIFAR-100")):
        others = View(test.network, data.load(name, limit=strangers), track=show)
        theirs = scores_of(detectors, see(others, layers))
        both = {score: torch.cat([values, theirs[score]]) for score, values in mine.items()}
        table[f"CIFAR-10 and {len(others)} of {title}"] = risks(both, np.append(wrong, np.ones(len(others), bool)))
    return table


def risks(scores: dict[str, Tensor], wrong: np.ndarray[Any, Any]) -> Table:
    """Return area, excess area, coverages and 100 points of the curve for each score."""
    table: Table = {"error_rate": 100 * wrong.mean()}
    for name, score in scores.items():
        curve = selective.risk_coverage(score, wrong)
        grid = np.linspace(1, 100, 100)
        table[name] = {
            "aurc": selective.aurc(score, wrong),
            "excess_aurc": selective.excess_aurc(score, wrong),
            "coverage_at_risk": {str(risk): selective.coverage_at_risk(score, wrong, risk) for risk in RISKS},
            "curve": {"coverage": grid.tolist(), "risk": np.interp(grid, curve.coverage, curve.risk).tolist()},
        }
    return table


def calibration(results: dict[str, Result], labels: np.ndarray[Any, Any]) -> Table:
    """Return log-loss, Brier score, both calibration errors and the reliability of p, and of q at each scale."""
    given = {"p": next(iter(results.values())).probabilities}
    given |= {f"q, {scale}": result.pnml_probabilities for scale, result in results.items()}
    table: Table = {}
    for name, probabilities in given.items():
        bins = calibration_error.reliability(probabilities, labels)
        table[name] = {
            "accuracy": 100 * float(np.mean(probabilities.argmax(dim=1).numpy() == labels)),
            "log_loss": calibration_error.log_loss(probabilities, labels),
            "brier": calibration_error.brier(probabilities, labels),
            "ece_width": calibration_error.calibration_error(probabilities, labels),
            "ece_mass": calibration_error.calibration_error(probabilities, labels, binning="mass"),
            "reliability": {key: value.tolist() for key, value in bins._asdict().items()},
        }
    return table


def adversarial(network: Network, detectors: dict[str, Detector], layers: tuple[Layer, ...], count: int) -> Table:
    """Attack test images; give what is left of the accuracy, and how well each score tells them from the clean ones."""
    images = data.load("cifar10", limit=count)
    model, labels = (
        NormalisingModel(network, network.normalise.mean, network.normalise.std),
        torch.tensor(images.labels),
    )
    clean = torch.cat([batch / 255 for batch in images.batches(50)])
    before = see_pixels(network, clean, layers)
    was_right, scores = before.logits.argmax(dim=1) == labels, scores_of(detectors, before)
    table: Table = {"images": len(images), "accuracy": 100 * float(was_right.double().mean())}
    for name, attack in (("fgsm", fgsm), ("pgd", pgd)):
        for epsilon in EPSILONS:
            pairs = list(zip(torch.split(clean, 50), torch.split(labels, 50), strict=True))
            steps = track(pairs, f"{name}, {epsilon}/255")
            changed = torch.cat([attack(model, x, y, epsilon=epsilon / 255) for x, y in steps])
            after = see_pixels(network, changed, layers)
            right, found = after.logits.argmax(dim=1) == labels, scores_of(detectors, after)
            misled = was_right & ~right
            table[f"{name} {epsilon}/255"] = {
                "accuracy": 100 * float(right.double().mean()),
                "misled": int(misled.sum()),
                "auroc": {score: auroc(scores[score], found[score]) for score in scores},
                "auroc_misled": {score: auroc(scores[score][misled], found[score][misled]) for score in scores},
            }
    return table


def see_pixels(network: Network, images: Tensor, layers: tuple[Layer, ...]) -> Seen:
    """Return what a network computes of images in [0, 1]."""
    parts, pooled = [], []
    for x in torch.split(images, 50):
        with torch.inference_mode(), record_layers(network, layers) as recorded:
            parts.append(forward(network, (x - network.normalise.mean) / network.normalise.std))
        pooled.append([features for features in recorded if features is not None])
    return Seen(*concatenate(parts), [torch.cat(features) for features in zip(*pooled, strict=True)])


def command(args: argparse.Namespace) -> str:
    given = {name: value for name, value in vars(args).items() if name != "out"}
    given |= {name: Path(given[name]).name for name in ("network", "foreign")}
    given["embedding_scale"] = " ".join(args.embedding_scale)
    return " ".join(["python -m studies.uses.run", *(f"--{n.replace('_', '-')} {v}" for n, v in given.items())])


def rounded(value: Any) -> Any:
    """Round every number to five significant digits, for people to read."""
    if isinstance(value, dict):
        return {key: rounded(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [rounded(entry) for entry in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


if __name__ == "__main__":
    main()
