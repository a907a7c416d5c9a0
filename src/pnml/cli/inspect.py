"""``pnml inspect``: what a detector file holds."""

import typer
from rich.console import Console
from rich.text import Text
from safetensors import safe_open

from pnml.cli._errors import user_errors
from pnml.cli._inputs import DetectorFile
from pnml.cli._spectrum import describe, draw
from pnml.cli._words import describe_threshold
from pnml.core.detector import Detector
from pnml.io.preparation_record import describe_preparation
from pnml.io.scores import layer_labels


@user_errors()
def inspect(detector: DetectorFile) -> None:
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
        **({} if held.preparation is None else {"images": describe_preparation(held.preparation)}),
        **_layers(held),
        "threshold": "\n".join(
            ["none: pnml calibrate sets one"] if threshold is None else describe_threshold(threshold)
        ),
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


def _scale(held: Detector) -> str:
    if held.embedding_scale != "auto":
        return held.embedding_scale
    share = held.embedding_length / held.correlation.mean_norm
    length = f"auto: embeddings are scaled to norm {held.embedding_length:.6g}, {share:.2f} of their mean norm"
    return f"{length}\nassumes {100 * held.label_noise:g}% of labels are random" if held.label_noise else length


def _layers(held: Detector) -> dict[str, str]:
    """Return a table of what is known about every layer; nothing for the leverage of the paper."""
    geometry = held.geometry
    if geometry is None:
        return {}
    rows = [("layer", "width", "parameters", "ridge", "limit")]
    limits = ["none", *(f"{limit:.3g}" for limit in geometry.depth.limits)]
    for name, scatter, limit in zip(layer_labels(held.layer_names), geometry.scatters, limits, strict=True):
        rows.append((name, f"{scatter.means.shape[1]:,}", f"{scatter.freedom:,.1f}", f"{scatter.ridge:.3g}", limit))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join([f"{row[0]:<{widths[0]}}", *(f"{cell:>{n}}" for cell, n in zip(row[1:], widths[1:], strict=True))])
        for row in rows
    ]
    words = "parameters in effect, the ridge, and the leverage above which an earlier layer has a say"
    return {"layers": "\n".join([words, *lines])}


def _coloured(line: str) -> Text:
    text = Text(line)
    text.highlight_regex("[▁▂▃▄▅▆▇█]+", "cyan")
    text.highlight_regex("×+", "red")
    return text
