"""``pnml inspect``: what a detector file holds."""

import typer
from rich.console import Console
from rich.text import Text
from safetensors import safe_open

from pnml.cli._app import Facts
from pnml.cli._inputs import DetectorFile
from pnml.cli._words import (
    aligned,
    describe_classes,
    describe_spectrum,
    describe_threshold,
    draw_spectrum,
    spectrum_facts,
    threshold_facts,
)
from pnml.core.detector import Detector
from pnml.io.preparation import describe_preparation, of_images


def inspect(detector: DetectorFile) -> Facts:
    """Print what a detector file holds, and draw the spectrum of the training embeddings.

    Example: `pnml inspect detector.safetensors`
    """
    held = Detector.load(detector)
    with safe_open(detector, framework="numpy") as file:
        metadata = file.metadata()
    spectrum = held.spectrum
    threshold = held.threshold
    facts = {
        "file": f"{detector}, {detector.stat().st_size:,} bytes",
        "format": f"{metadata['kind']} {metadata['version']}, written by {metadata['written_by']}",
        "head": f"{held.n_features:,} features to {held.n_classes:,} classes, digest {held.head_digest[:12]}",
        "fitted on": f"{held.count:,} rows of mean norm {held.mean_norm:.6g}",
        "scale": _scale(held),
        "computes": f"{held.precision} for samples of float32",
        "rank": f"{held.rank:,} of {len(spectrum):,}",
        "spectrum": describe_spectrum(spectrum),
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
    for line in draw_spectrum(spectrum, width=max(8, min(72, console.width - 12))):
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
        "rows": held.count,
        "mean_norm": held.mean_norm,
        "embedding_scale": held.embedding_scale,
        "embedding_length": held.embedding_length,
        "label_noise": held.label_noise,
        "precision": held.precision,
        **spectrum_facts(spectrum),
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
    share = held.embedding_length / held.mean_norm
    length = f"auto: embeddings are scaled to norm {held.embedding_length:.6g}, {share:.2f} of their mean norm"
    return f"{length}\nassumes {100 * held.label_noise:g}% of labels are random" if held.label_noise else length


def _layers_as_facts(held: Detector) -> list[Facts]:
    """Return the name and the width of every block that has a leverage; nothing for the leverage of the paper."""
    if held.model.geometry is None:
        return []
    widths = held.model.layout.block_widths
    return [{"name": name, "width": width} for name, width in zip(held.block_names, widths, strict=True)]


def _layers(held: Detector) -> dict[str, str]:
    """Return a table of every block that has a leverage; nothing for the leverage of the paper."""
    layers = _layers_as_facts(held)
    if not layers:
        return {}
    rows = [("layer", "width"), *((layer["name"], f"{layer['width']:,}") for layer in layers)]
    return {"layers": "\n".join(aligned(rows))}


def _coloured(line: str) -> Text:
    text = Text(line)
    text.highlight_regex("[▁▂▃▄▅▆▇█]+", "cyan")
    text.highlight_regex("×+", "red")
    return text
