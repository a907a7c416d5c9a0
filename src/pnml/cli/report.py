"""``pnml report``: a page to open in a browser, of benchmark results or of scores."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnml.cli._app import Facts
from pnml.cli._benchmark import benchmark

if TYPE_CHECKING:
    from pnml.report import Report

_SOURCE = "A folder of results of `pnml bench`, or a table of `pnml score`."
_IMAGES = "Scores: the images that were scored, for the gallery."
_DETECTOR = (
    "Scores: the detector, for how many flagged samples to expect, the calibration samples behind the histogram, its "
    "layers and its spectrum."
)
_CLASSES = "Scores: a text file of class names, one a line."
_STUDY = "Results: of this study; by default the only one, or `paper`."
_OF_RESULTS = "--study, --model, --ind and --method go with a folder of results"
_OF_SCORES = "--images, --detector and --classes go with a table of scores"


def report(
    source: Annotated[Path, typer.Argument(help=_SOURCE, exists=True)],
    *,
    out: Annotated[Path, typer.Option(help="The page to write.", dir_okay=False)] = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="Its title.")] = None,
    images: Annotated[Path | None, typer.Option(help=_IMAGES, exists=True)] = None,
    detector: Annotated[Path | None, typer.Option(help=_DETECTOR, exists=True, dir_okay=False)] = None,
    classes: Annotated[Path | None, typer.Option(help=_CLASSES, exists=True, dir_okay=False)] = None,
    study: Annotated[str | None, typer.Option(help=_STUDY, show_default=False)] = None,
    model: Annotated[str | None, typer.Option(help="Results: of this network only.")] = None,
    ind: Annotated[str | None, typer.Option(help="Results: of this in-distribution set only.")] = None,
    method: Annotated[str | None, typer.Option(help="Results: of this method only.")] = None,
) -> Facts:
    """Write one HTML page that works offline: whether these are the data you calibrated on, and which samples are not.

    It has the share of flagged samples beside the expected one, histograms with a threshold to move, p-values, shares
    by predicted class, the flagged samples to download, and pictures; of benchmark results also metrics and ROC.

    Of scores with a detector of several layers, it shows at which depth of the network flagged samples are strange;
    with `pnml score --by-layer` also the shares of all layers in every picture.

    Of results it always has the tables; charts and pictures of those run with `--keep-scores`.

    Example: `pnml report scores.csv --images new/ --detector detector.safetensors`

    Example: `pnml report results --out report.html`
    """
    from pnml.io.outputs import check_output

    check_output(out, source, images, detector, classes)
    if source.is_file() or any(source.glob("*.parquet")):
        if study or model or ind or method:
            raise typer.BadParameter(f"{_OF_RESULTS}, and {source} is a table of scores")
        made = _of_scores(source, images, detector, classes)
    else:
        if images or detector or classes:
            raise typer.BadParameter(f"{_OF_SCORES}, and {source} is a folder of results")
        made = _of_results(source, study, model, ind, method)
    from dataclasses import replace

    from pnml.report import write_report
    from pnml.report.verdict import UNDECIDED, is_undecided, verdict

    path = write_report(made if title is None else replace(made, title=title), out)
    answers = {one.name: answer for one in made.sets if (answer := verdict(made, one)) is not None}
    for name, answer in answers.items():
        typer.echo(f"{name}: {answer.sentence} {answer.details}")
    if is_undecided(made):
        typer.echo(UNDECIDED)
    typer.echo(f"wrote {path}, {path.stat().st_size / 1000:,.0f} kB: open it in a browser")
    return {
        "report": path,
        "bytes": path.stat().st_size,
        "answers": {name: answer._asdict() for name, answer in answers.items()},
    }


def _of_results(folder: Path, study: str | None, model: str | None, ind: str | None, method: str | None) -> Report:
    commands = benchmark()
    if commands is None:
        raise typer.BadParameter(f"{folder} is a folder of results, which are read by pnml_bench: it is not installed")
    made: Report = commands.report_of_results(folder, study, model, ind, method)
    return made


def _of_scores(path: Path, images: Path | None, detector: Path | None, classes: Path | None) -> Report:
    from pnml.io.texts import read_class_names
    from pnml.report.scored import report_of_scores

    if detector is None:
        typer.echo("without --detector the page cannot say how many flagged samples to expect", err=True)
    names = [] if classes is None else read_class_names(classes)
    return report_of_scores(path, images=images, detector=detector, class_names=names, names_file=classes)
