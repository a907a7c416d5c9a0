"""What each precision does to the AUROC of real networks, from embeddings that research/embeddings.py stored."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from h200_clock import Bench, Scorer
from pnml.fused import Fused
from safetensors import safe_open
from scipy.stats import rankdata

from pnml import Correlation, Detector
from pnml.core.quick import Quick
from pnml.core.sample import RowSample

if TYPE_CHECKING:
    from pathlib import Path

    from torch import Tensor

    from pnml.core.scaling import EmbeddingScale

Matrix = np.ndarray[Any, Any]


def real(bench: Bench, folder: Path) -> dict[str, Any]:
    """Compare the AUROC of each precision with that of float64 on networks' embeddings."""
    found = {}
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            held = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        matrix, norms, sample = held["correlation/unit"].numpy(), held["norms"].double(), RowSample.of(held["train"])
        statistic = Correlation.restore(matrix, len(norms), float(norms.sum()), unit_norm=True, sample=sample)
        scales: tuple[EmbeddingScale, ...] = ("paper", "auto")
        for scale in scales:
            detector = Detector(held["weight"], held["bias"], embedding_scale=scale).merge(statistic)
            found[f"{path.stem}, {scale}"] = one_network(bench, detector, held)
    return found


def one_network(bench: Bench, detector: Detector, held: dict[str, Tensor]) -> dict[str, Any]:
    sets = {name: x.to(bench.device) for name, x in held.items() if name == "test" or name.startswith("ood/")}
    held_by = *detector.scaled_head, detector.subspace, detector.embedding_scale
    quick = Quick(*held_by, label_noise=detector.label_noise)
    values = detector.subspace.eigenvalues
    found: dict[str, Any] = {
        "features": detector.n_features,
        "rank": detector.subspace.rank,
        "condition": float(values[0] / values[detector.subspace.rank - 1]),
        "typical_float32_bound": quick.typical_error,
        "doubtful_share": {name: 1 - float(quick.score(x)[1].double().mean()) for name, x in sets.items()},
    }
    regrets = {
        kind: {name: Scorer(detector, kind, x)(x).double().cpu().numpy() for name, x in sets.items()}
        for kind in ("float64", "float32", "tf32")
    }
    regrets["float32 as offered"] = {
        name: detector.score(x, precision="float32").double().cpu().numpy() for name, x in sets.items()
    }
    kernel = Fused(*held_by, label_noise=detector.label_noise)
    found["typical_float16_error"] = kernel.typical_error
    if kernel.suits(sets["test"]):
        found["doubtful_share_float16"] = {
            name: 1 - float(kernel.score(x)[1].double().mean()) for name, x in sets.items()
        }
        regrets["float16 as offered"] = {
            name: detector.score(x, precision="float16").double().cpu().numpy() for name, x in sets.items()
        }
    reference = regrets["float64"]
    for kind, by_set in regrets.items():
        apart = [np.abs(values - reference[name]) / reference[name] for name, values in by_set.items()]
        found[kind] = {
            "auroc": {name: auroc(by_set["test"], values) for name, values in by_set.items() if name != "test"},
            "largest_relative_difference": float(max(share.max() for share in apart)),
            "median_relative_difference": float(np.median(np.concatenate(apart))),
        }
        found[kind]["largest_auroc_difference"] = max(
            abs(found[kind]["auroc"][name] - value) for name, value in found["float64"]["auroc"].items()
        )
    return found


def auroc(inside: Matrix, outside: Matrix) -> float:
    """Give the AUROC in percent of scores that grow with distrust."""
    ranks = rankdata(np.concatenate([inside, outside]))[len(inside) :]
    return float(100 * (ranks.sum() / len(outside) - (len(outside) + 1) / 2) / len(inside))
