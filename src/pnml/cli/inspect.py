"""``pnml inspect``: what a detector file holds."""

import numpy as np
import typer
from rich.console import Console
from rich.text import Text
from safetensors import safe_open

from pnml.cli._app import Facts
from pnml.cli._inputs import DetectorFile
from pnml.cli._spectrum import describe, describe_as_facts, draw
from pnml.cli._words import aligned, describe_classes, describe_threshold, threshold_facts
from pnml.core.detector import Detector
from pnml.io.preparation_record import describe_preparation, of_images
from pnml.io.scores import layer_labels


def inspect(detector: DetectorFile) -> Facts:
    """Print what a detector file holds, and draw the spectrum of the training embeddings.

    Example: `pnml inspect detector.safetensors`
    """
    held = Detector.load(detector)
    with safe_open(detector, framework="numpy") as file:
        metadata = file.metadata()
    subspace, threshold = held.subspace, held.threshold
    facts = {
        "file": f"{detector}, {detector.stat().st_size:,} bytes",
        "format": f"{metadata['kind']} {metadata['version']}, written by {metadata['written_by']}",
        "head": f"{held.n_features:,} features to {held.n_classes:,} classes, digest {held.head_digest[:12]}",
        "fitted on": f"{subspace.count:,} rows of mean norm {held.correlation.mean_norm:.6g}",
        "scale": _scale(held),
        "rank": f"{subspace.rank:,} of {subspace.n_features:,}",
        "spectrum": describe(subspace),
        **_preparation(held),
        **_layers(held),
        "threshold": "\n".join(
            ["none: pnml calibrate sets one"] if threshold is None else describe_threshold(threshold)
        ),
        **({"classes": "\n".join(describe_classes(threshold))} if threshold is not None and threshold.classes else {}),
    }
    for name, fact in facts.items():
        first, *rest = fact.split("\n")
        typer.echo(f"{name:<10} {first}")
        for line in rest:
            typer.echo(f"{'':<10} {line}")
    console = Console(highlight=False)
    console.print("\nEigenvalues of the mean correlation, largest to smallest, logarithmic:", soft_wrap=True)
    for line in draw(subspace, width=max(8, min(72, console.width - 12))):
        console.print(_coloured(line), soft_wrap=True)
    return {
        "detector": detector,
        "bytes": detector.stat().st_size,
        "kind": metadata["kind"],
        "format": int(metadata["version"]),
        "written_by": metadata["written_by"],
        "features": held.n_features,
        "classes": held.n_classes,
        "head_digest": held.head_digest,
        "rows": subspace.count,
        "mean_norm": held.correlation.mean_norm,
        "embedding_scale": held.embedding_scale,
        "embedding_length": held.embedding_length,
        "label_noise": held.label_noise,
        **describe_as_facts(subspace),
        "layers": _layers_as_facts(held),
        "preparation": held.preparation,
        "threshold": None if threshold is None else threshold_facts(threshold),
    }


def _preparation(held: Detector) -> dict[str, str]:
    """Return how samples become embeddings; nothing where the file does not say."""
    record = held.preparation
    return {} if record is None else {"images" if of_images(record) else "columns": describe_preparation(record)}


def _scale(held: Detector) -> str:
    if held.embedding_scale != "auto":
        return held.embedding_scale
    share = held.embedding_length / held.correlation.mean_norm
    length = f"auto: embeddings are scaled to norm {held.embedding_length:.6g}, {share:.2f} of their mean norm"
    return f"{length}\nassumes {100 * held.label_noise:g}% of labels are random" if held.label_noise else length


def _layers_as_facts(held: Detector) -> list[Facts]:
    """Return what is known about the embedding and every earlier layer; nothing for the leverage of the paper."""
    geometry = held.geometry
    if geometry is None:
        return []
    names = layer_labels(held.layer_names)
    return [
        {
            "name": name,
            "width": scatter.means.shape[1],
            "parameters": float(scatter.freedom),
            "ridge": float(scatter.ridge),
            "typical_leverage": float(np.median(scatter.typical)),
        }
        for name, scatter in zip(names, geometry.scatters, strict=True)
    ]


def _layers(held: Detector) -> dict[str, str]:
    """Return a table of what is known about every layer; nothing for the leverage of the paper."""
    layers = _layers_as_facts(held)
    if not layers:
        return {}
    rows = [("layer", "width", "parameters", "ridge", "leverage")]
    for layer in layers:
        numbers = f"{layer['width']:,}", f"{layer['parameters']:,.1f}", f"{layer['ridge']:.3g}"
        rows.append((layer["name"], *numbers, f"{layer['typical_leverage']:.3g}"))
    words = "parameters in effect, the ridge, and the median leverage of training rows"
    return {"layers": "\n".join([words, *aligned(rows)])}


def _coloured(line: str) -> Text:
    text = Text(line)
    text.highlight_regex("[▁▂▃▄▅▆▇█]+", "cyan")
    text.highlight_regex("×+", "red")
    return text
