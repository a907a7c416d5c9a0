"""What several commands share: options, and word of other studies in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pnml_bench.store import load_study, study_names

if TYPE_CHECKING:
    from collections.abc import Callable

    from pnml_bench.results import Result


ModelOption = Annotated[
    str, typer.Option("--model", help="The network: densenet-bc-100, resnet-34, resnet-20, wideresnet-40-2, ...")
]
IndOption = Annotated[str, typer.Option("--ind", help="The in-distribution set, as `cifar10`; see `pnml data list`.")]
OodOption = Annotated[
    str, typer.Option("--ood", help="The OOD sets with commas between: names, or paths of folders or .parquet files.")
]
DeviceOption = Annotated[
    str, typer.Option("--device", help="Where to compute: auto, which is a GPU if there is one; cpu, cuda, cuda:1, ...")
]
LimitOption = Annotated[
    int | None,
    typer.Option("--limit", help="At most this many images of every set, evenly spaced, for a quick look."),
]
CheckpointOption = Annotated[
    Path | None,
    typer.Option(
        "--weights",
        "--checkpoint",
        help="Your own weights for the network, instead of the published ones.",
        exists=True,
        dir_okay=False,
    ),
]
_RESULTS_HELP = "The folder of results: `pnml bench` adds rows to its `cells.csv`."
NewResultsOption = Annotated[Path, typer.Option("--results", "--out", help=_RESULTS_HELP, file_okay=False)]
ResultsOption = Annotated[Path, typer.Option("--results", help=_RESULTS_HELP)]
StudyOption = Annotated[
    str | None,
    typer.Option("--study", help="The study; by default the only one, or `paper`.", show_default=False),
]


def load_chosen(folder: Path, study: str | None) -> list[Result]:
    """Read the results of a study; name the others on stderr where the user did not choose."""
    results = load_study(folder, study)
    name_others(folder, study, results[0].study)
    return results


def name_others(folder: Path, study: str | None, chosen: str, base: Callable[[str], str] = str) -> None:
    """Name the other studies of a folder on stderr, unless the user chose one; ``base`` tells which belong together."""
    others = [name for name in study_names(folder) if base(name) != chosen]
    if study is None and others:
        typer.echo(f"shown is the study {chosen}; --study chooses another: {', '.join(others)}", err=True)
