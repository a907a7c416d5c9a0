"""``pnml calibrate``: set a detector's threshold from in-distribution data."""

from typing import Annotated

import typer

from pnml.backend.files import check_writable
from pnml.cli import _inputs as options
from pnml.cli._app import Facts
from pnml.cli._words import advise, describe_classes, describe_threshold, threshold_facts
from pnml.core.calibration import By
from pnml.engines import local


@options.with_inputs
def calibrate(
    *,
    detector: options.DetectorFile,
    inputs: options.Inputs,
    false_alarm_rate: Annotated[
        float,
        typer.Option(help="The share of in-distribution samples that may be flagged, between 0 and 1: 0.01 is 1%."),
    ] = 0.05,
    leave_one_out: Annotated[
        bool,
        typer.Option(
            "--leave-one-out", help="The samples are the training set; score each as if it had been left out."
        ),
    ] = False,
    by: Annotated[
        By | None, typer.Option(help="prediction: keep the rate for every predicted class that has enough samples.")
    ] = None,
    check_model: options.CheckModelOption = True,
) -> Facts:
    """Set the threshold of a detector from in-distribution samples it was not fitted on.

    At most --false-alarm-rate of fresh in-distribution samples will be flagged on average. The threshold is written
    into the detector's file. If no samples were held out, --leave-one-out uses the training set; the network was
    trained on it, so more fresh samples are flagged than requested. Samples that are recognised as training rows
    without it are reported.

    The rate is an average over all classes, and a rare class may be flagged far more often. --by prediction sets one
    threshold for each predicted class that has enough samples; the others share one.

    Example: `pnml calibrate detector.safetensors --embeddings held_out.npy --false-alarm-rate 0.05`

    Example: `pnml calibrate detector.safetensors --embeddings held_out.npy --by prediction`
    """
    if not 0 < false_alarm_rate < 1:
        raise typer.BadParameter(
            f"{false_alarm_rate} does not lie between 0 and 1; 1% is 0.01", param_hint="--false-alarm-rate"
        )
    check_writable(detector)
    samples, fitted = inputs.open_with_detector(detector, check_model=check_model)
    threshold, skipped = local.calibrate(
        samples, fitted, false_alarm_rate=false_alarm_rate, leave_one_out=leave_one_out, by=by
    )
    options.list_skipped(skipped, samples)
    fitted.save(detector)
    typer.echo("threshold " + "\n".join(describe_threshold(threshold)))
    for line in advise(threshold) if by is None else describe_classes(threshold):
        typer.echo(line)
    typer.echo(f"wrote it into {detector}")
    return {"detector": detector, "input": samples.path, "threshold": threshold_facts(threshold), "skipped": skipped}
