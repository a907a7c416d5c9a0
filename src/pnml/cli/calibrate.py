"""``pnml calibrate``: set a detector's threshold from in-distribution data."""

from typing import Annotated

import numpy as np
import typer

from pnml.backend.arrays import to_numpy
from pnml.cli._errors import user_errors
from pnml.cli._inputs import (
    BatchSizeOption,
    DetectorFile,
    EmbeddingsOption,
    ImagesOption,
    Inputs,
    MeanOption,
    ModelOption,
    SizeOption,
    StdOption,
    StrictOption,
    WeightsOption,
    read,
    report_skipped,
)
from pnml.cli._words import describe_threshold
from pnml.core.calibration import calibrate as set_threshold


@user_errors()
def calibrate(
    *,
    detector: DetectorFile,
    embeddings: EmbeddingsOption = None,
    images: ImagesOption = None,
    model: ModelOption = None,
    weights: WeightsOption = None,
    false_alarm_rate: Annotated[
        float, typer.Option(help="The share of in-distribution samples that may be flagged, between 0 and 1.")
    ] = 0.05,
    leave_one_out: Annotated[
        bool, typer.Option("--leave-one-out", help="The samples are the training set; score each as if unseen.")
    ] = False,
    size: SizeOption = None,
    mean: MeanOption = None,
    std: StdOption = None,
    batch_size: BatchSizeOption = 128,
    strict: StrictOption = False,
) -> None:
    """Set the threshold of a detector from in-distribution samples it was not fitted on.

    At most --false-alarm-rate of fresh in-distribution samples will be flagged on average. The threshold is written
    into the detector's file. Where nothing was held out, --leave-one-out takes the training set itself; the network
    has been trained on it, so more fresh samples are flagged than asked for.

    Example: `pnml calibrate detector.safetensors --embeddings held_out.npy --false-alarm-rate 0.05`
    """
    if not 0 < false_alarm_rate < 1:
        raise typer.BadParameter(f"{false_alarm_rate} does not lie between 0 and 1", param_hint="--false-alarm-rate")
    inputs = Inputs(embeddings, images, model, weights, size, mean, std, batch_size, strict)
    samples, fitted = inputs.open_with_detector(detector)
    scores: list[np.ndarray[tuple[int], np.dtype[np.float64]]] = []
    skipped: list[str] = []
    for chunk in read(samples, "calibrate", fitted.n_features):
        skipped += chunk.skipped
        if len(chunk.ids):
            scores.append(to_numpy(fitted.score(chunk.embeddings, leave_one_out=leave_one_out)))
    report_skipped(skipped, samples)
    source = "leave-one-out" if leave_one_out else "held-out"
    fitted.threshold = set_threshold(np.concatenate(scores), false_alarm_rate=false_alarm_rate, source=source)
    fitted.save(detector)
    typer.echo("threshold " + "\n".join(describe_threshold(fitted.threshold)))
    typer.echo(f"wrote it into {detector}")
