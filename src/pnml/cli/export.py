"""``pnml export``: a model and its detector as one ONNX graph."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pnml.cli._errors import user_errors
from pnml.cli._inputs import DetectorFile, WeightsOption
from pnml.io.model import load_model


@user_errors()
def export(
    *,
    detector: DetectorFile,
    model: Annotated[str, typer.Option(help="package.module:factory of the model the detector was fitted for.")],
    example_shape: Annotated[str, typer.Option(help="The shape of one input of the model, as 3,32,32.")],
    out: Annotated[Path, typer.Option(help="The graph to write, an .onnx file.", dir_okay=False)],
    weights: WeightsOption = None,
) -> None:
    """Write the model and its detector as one ONNX graph, from prepared images to the decision.

    The graph takes batches of any size, resized and normalised as the model expects them, and returns logits,
    probabilities and regret, and p_value and is_ood once the detector is calibrated.

    Example: `pnml export detector.safetensors --model mine:create --example-shape 3,32,32 --out guarded.onnx`
    """
    shape = _shape(example_shape)
    network, _ = load_model(model, weights)
    import torch

    from pnml.pytorch.export import export_onnx
    from pnml.pytorch.guard import Guard

    guard = Guard(network).load(detector)
    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with Console(stderr=True).status("export"):
            export_onnx(guard, torch.rand(2, *shape), out)
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        raise ValueError(f"the model cannot be exported with inputs of shape {shape}: {error}") from error
    threshold = guard.fitted().threshold
    decision = "" if threshold is None else ", p_value, is_ood"
    typer.echo(f"wrote {out}: input (batch, {', '.join(map(str, shape))}) to logits, probabilities, regret{decision}")
    if threshold is None:
        typer.echo("no threshold is set, so the graph has no p_value and is_ood: pnml calibrate sets one")


def _shape(text: str) -> tuple[int, ...]:
    try:
        shape = tuple(int(part) for part in text.split(","))
    except ValueError:
        shape = (0,)
    if min(shape) < 1:
        raise typer.BadParameter(
            f"{text!r} is not positive whole numbers with commas between", param_hint="--example-shape"
        )
    return shape
