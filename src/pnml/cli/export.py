"""``pnml export``: a model and its detector as one ONNX graph."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from pnml.cli._app import Facts
from pnml.cli._inputs import CheckModelOption, DetectorFile, WeightsOption
from pnml.io.model import load_model
from pnml.io.outputs import check_output
from pnml.io.preparation import Record, describe_preparation, of_images, pixels_of


def export(
    *,
    detector: DetectorFile,
    model: Annotated[str, typer.Option(help="The model that the detector was fitted for, as mine.py:create.")],
    example_shape: Annotated[
        str | None,
        typer.Option(
            help="The shape of one input of the model, as 3,32,32; that of the images the detector was fitted on, if "
            "left out.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="The graph to write, an .onnx file.", dir_okay=False)],
    weights: WeightsOption = None,
    check_model: CheckModelOption = True,
) -> Facts:
    """Write the model and its detector as one ONNX graph, from prepared images to the decision.

    The graph takes batches of any size, resized and normalised as the model expects them, and returns logits,
    probabilities and regret, and p_value and is_ood once the detector is calibrated.

    Example: `pnml export detector.safetensors --model mine.py:create --out guarded.onnx`
    """
    check_output(out, detector, weights)
    given = None if example_shape is None else _shape(example_shape)
    network, _ = load_model(model, weights)
    import torch

    from pnml.pytorch.export import export_onnx
    from pnml.pytorch.guard import Guard

    guard = Guard(network).load(detector, check_model=check_model)
    preparation = of_images(guard.fitted().preparation)
    shape = _checked_shape(given, preparation)
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
    if preparation is not None:
        typer.echo(f"its images have to be prepared as the detector's: {describe_preparation(preparation)}")
    return {
        "graph": out,
        "input_shape": shape,
        "threshold": None if threshold is None else threshold.value,
        "preparation": preparation,
    }


def _checked_shape(given: tuple[int, ...] | None, preparation: Record | None) -> tuple[int, ...]:
    """Return the shape that was given, or that of the images of the detector; refuse one that contradicts them."""
    pixels = None if preparation is None else pixels_of(preparation)
    if pixels is None:
        if given is None:
            raise typer.BadParameter("the detector does not know the shape of its inputs", param_hint="--example-shape")
        return given
    shape = (3, *pixels)
    if given is not None and given != shape and preparation is not None and preparation["size"] is not None:
        raise ValueError(
            f"the detector was fitted on images of shape {shape}, got --example-shape {','.join(map(str, given))}: "
            "leave it out, or fit again with another --size"
        )
    return shape if given is None else given


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
