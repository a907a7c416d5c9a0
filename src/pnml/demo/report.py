"""The report and the printed table of the demo."""

from __future__ import annotations

import platform
from datetime import datetime, timezone
from typing import TYPE_CHECKING

import torch
from rich import box
from rich.table import Table
from rich.text import Text

from pnml._version import __version__
from pnml.report import Report
from pnml.report.labels import label
from pnml.report.tables import METRICS, metrics_by_set

if TYPE_CHECKING:
    from pnml.demo.scoring import DemoResult
    from pnml.report.tables import MetricsPair

_CREDITS = (
    "CIFAR-10 by Alex Krizhevsky, Vinod Nair and Geoffrey Hinton; digits and photographs from scikit-learn, the "
    "photographs by danielbuechele and vultilion (CC BY 2.0); textures, if shown, from scikit-image (CC0)"
)


def as_report(result: DemoResult) -> Report:
    """Return the report for :func:`pnml.report.write_report`."""
    detector, threshold, training = result.detector, result.threshold, result.training
    rate = f"{100 * threshold.false_alarm_rate:g} %"
    return Report(
        title="pnml demo: CIFAR-10 against other images",
        facts={
            "Network": f"ResNet-20 trained on CIFAR-10 for {training['epochs']} epochs ({training['date']})",
            "Test accuracy": f"{float(training['test_accuracy']):.2f} % of {int(training['test_images']):,} images",
            "Detector": f"fitted on {detector.count:,} training images: their embeddings and "
            f"{len(detector.layer_names)} earlier layers; no hyper-parameter was tuned",
            "Threshold": f"set on {threshold.count:,} other test images to flag {rate} of them",
            "Images": _CREDITS,
            "Command": "pnml demo",
            "Date": datetime.now(timezone.utc).date().isoformat(),
            "Versions": f"pnml {__version__}, PyTorch {torch.__version__}, Python {platform.python_version()}",
        },
        sets=(result.ind, *result.ood),
        class_names=result.classes,
        spectrum=detector.spectrum,
        calibration=threshold,
        layer_names=detector.watched_names,
    )


def compare(result: DemoResult) -> dict[str, MetricsPair]:
    """Return the metrics of Baseline (1 − the largest probability) and of the regret for each kind of OOD image."""
    return metrics_by_set(as_report(result))


def as_table(comparison: dict[str, MetricsPair]) -> Table:
    """Return a table in ASCII, at most 80 characters wide; the better of two numbers is bold."""
    table = Table(box=box.MARKDOWN, header_style="")
    table.add_column("Baseline / pNML, in %", no_wrap=True)
    for metric in METRICS:
        table.add_column(label(metric), justify="right", no_wrap=True)
    for name, pair in comparison.items():
        table.add_row(name, *(_cell(getattr(pair.baseline, metric), getattr(pair.pnml, metric)) for metric in METRICS))
    return table


def _cell(baseline: float, pnml: float) -> Text:
    best = max(baseline, pnml)
    return Text(" / ").join(Text(f"{one:.1f}", style="bold" if one == best else "") for one in (baseline, pnml))
